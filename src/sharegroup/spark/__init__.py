"""A share group as a PySpark streaming source and a Kafka sink: format ``kafka-share``."""

try:
    from sharegroup.spark.java import ensure_java
    from sharegroup.spark.outcomes import dead_letter, outcomes, reject, release
    from sharegroup.spark.python import ensure_python
    from sharegroup.spark.source import KafkaShareDataSource
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: sharegroup.spark needs PySpark, pip install 'sharegroup[spark]'"
    ) from error

__all__ = [
    "KafkaShareDataSource",
    "dead_letter",
    "ensure_java",
    "ensure_python",
    "outcomes",
    "reject",
    "release",
]
