"""Found by Spark itself: it looks for packages named ``pyspark_…`` with a ``DefaultSource``.

So ``spark.readStream.format("kafka-share")`` works in every session that has sharegroup on its
path, without a line of registration.
"""

from sharegroup.spark.source import KafkaShareDataSource as DefaultSource

__all__ = ["DefaultSource"]
