"""A share group as a PySpark streaming source and a Kafka sink: format ``kafka-share``."""

from sharegroup.spark.java import ensure_java
from sharegroup.spark.source import KafkaShareDataSource

__all__ = ["KafkaShareDataSource", "ensure_java"]
