"""A share group as a PySpark streaming source and a Kafka sink: format ``kafka-share``."""

from sharegroup.spark.java import ensure_java
from sharegroup.spark.outcomes import dead_letter, outcomes, reject, release
from sharegroup.spark.source import KafkaShareDataSource

__all__ = [
    "KafkaShareDataSource",
    "dead_letter",
    "ensure_java",
    "outcomes",
    "reject",
    "release",
]
