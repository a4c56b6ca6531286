"""A share group as a PySpark streaming source and a Kafka sink: format ``kafka-share``.

Each query starts several Python processes that import this package. The names that most of them do
not need are imported at their first use, because they import the client: 0.4 s of CPU time.

Importing this package sets ``PYSPARK_PYTHON`` if it is unset, so Spark uses the Python that
imports it, and ``JAVA_HOME`` if there is no Java but that of the extra ``java``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sharegroup.errors import MissingExtra

try:
    from sharegroup.spark.java import ensure_java, set_default_java
    from sharegroup.spark.outcomes import dead_letter, outcomes, reject, release
    from sharegroup.spark.python import ensure_python, set_default_python
    from sharegroup.spark.source import KafkaShareDataSource
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"{error}: sharegroup.spark needs PySpark, pip install 'sharegroup[spark]'"
    ) from error

if TYPE_CHECKING:
    from sharegroup.spark.letters.redrive import redrive
    from sharegroup.spark.letters.source import KafkaShareLettersDataSource
    from sharegroup.spark.listener import ShareGroupListener
    from sharegroup.spark.registry.columns import from_registry
    from sharegroup.spark.state.source import KafkaShareStateDataSource
    from sharegroup.spark.transactional_write import write_in_transaction

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

_MODULES = {
    "KafkaShareLettersDataSource": "sharegroup.spark.letters.source",
    "KafkaShareStateDataSource": "sharegroup.spark.state.source",
    "ShareGroupListener": "sharegroup.spark.listener",
    "from_registry": "sharegroup.spark.registry.columns",
    "redrive": "sharegroup.spark.letters.redrive",
    "write_in_transaction": "sharegroup.spark.transactional_write",
}

# Hidden from type checkers: with `__getattr__` they would accept every name in this module.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
