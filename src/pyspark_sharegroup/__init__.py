"""Registers the data source with Spark: it looks for ``DefaultSource`` in ``pyspark_…`` packages.

So ``spark.readStream.format("kafka-share")`` works without registration in every session that has
sharegroup on its path.
"""

from sharegroup.spark.source import KafkaShareDataSource as DefaultSource

__all__ = ["DefaultSource"]
