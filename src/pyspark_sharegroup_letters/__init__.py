"""Registers the data source ``kafka-share-letters`` with Spark (see ``pyspark_sharegroup``)."""

from sharegroup.spark.letters.source import KafkaShareLettersDataSource as DefaultSource

__all__ = ["DefaultSource"]
