"""A share group as a PySpark streaming source and a Kafka sink: format ``kafka-share``.

Importing this package sets ``PYSPARK_PYTHON`` if it is unset, so Spark uses the Python that
imports it, and ``JAVA_HOME`` if there is no Java but that of the extra ``java``.
"""

try:
    from sharegroup.spark.java import ensure_java, set_default_java
    from sharegroup.spark.letters.redrive import redrive
    from sharegroup.spark.letters.source import KafkaShareLettersDataSource
    from sharegroup.spark.listener import ShareGroupListener
    from sharegroup.spark.outcomes import dead_letter, outcomes, reject, release
    from sharegroup.spark.python import ensure_python, set_default_python
    from sharegroup.spark.registry.columns import from_registry
    from sharegroup.spark.source import KafkaShareDataSource
    from sharegroup.spark.state.source import KafkaShareStateDataSource
    from sharegroup.spark.transactional_write import write_in_transaction
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: sharegroup.spark needs PySpark, pip install 'sharegroup[spark]'"
    ) from error

# An exception to the rule that an import has no effect: without it the first query in a virtual
# environment that is not activated fails with DATA_SOURCE_NOT_FOUND, because Spark starts the
# python3 of the PATH, which has no sharegroup.
set_default_python()
set_default_java()

__all__ = [
    "KafkaShareDataSource",
    "KafkaShareLettersDataSource",
    "KafkaShareStateDataSource",
    "ShareGroupListener",
    "dead_letter",
    "ensure_java",
    "ensure_python",
    "from_registry",
    "outcomes",
    "redrive",
    "reject",
    "release",
    "write_in_transaction",
]
