"""Registers the data source ``kafka-share-state`` with Spark (see ``pyspark_sharegroup``)."""

from sharegroup.spark.state.source import KafkaShareStateDataSource as DefaultSource

__all__ = ["DefaultSource"]
