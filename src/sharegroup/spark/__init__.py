"""A share group as a PySpark streaming source and a Kafka sink: format ``kafka-share``.

Each query starts several Python processes that import this package. The names that most of them do
not need are imported at their first use, because they import the client: 0.4 s of CPU time.

Importing this package sets ``PYSPARK_PYTHON`` if it is unset, so Spark uses the Python that
imports it, and ``JAVA_HOME`` if there is no Java but that of the extra ``java``.
"""

from typing import TYPE_CHECKING

from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install
from sharegroup.lazy_names import lazy_names

try:
    from sharegroup.spark.java import ensure_java as ensure_java, set_default_java
    from sharegroup.spark.outcomes import (
        dead_letter as dead_letter,
        outcomes as outcomes,
        reject as reject,
        release as release,
    )
    from sharegroup.spark.python import ensure_python as ensure_python, set_default_python
    from sharegroup.spark.source import KafkaShareDataSource as KafkaShareDataSource
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"{error}: sharegroup.spark needs PySpark, {pip_install('spark')}"
    ) from error

if TYPE_CHECKING:
    from sharegroup.spark.letters.redrive import redrive as redrive
    from sharegroup.spark.letters.source import (
        KafkaShareLettersDataSource as KafkaShareLettersDataSource,
    )
    from sharegroup.spark.listener import ShareGroupListener as ShareGroupListener
    from sharegroup.spark.registry.columns import from_registry as from_registry
    from sharegroup.spark.state.source import KafkaShareStateDataSource as KafkaShareStateDataSource
    from sharegroup.spark.transactional_write import write_in_transaction as write_in_transaction

# An exception to the rule that an import has no effect: without it the first query in a virtual
# environment that is not activated fails with DATA_SOURCE_NOT_FOUND, because Spark starts the
# python3 of the PATH, which has no sharegroup.
set_default_python()
set_default_java()

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "spark.letters.redrive": "redrive",
            "spark.letters.source": "KafkaShareLettersDataSource",
            "spark.listener": "ShareGroupListener",
            "spark.registry.columns": "from_registry",
            "spark.state.source": "KafkaShareStateDataSource",
            "spark.transactional_write": "write_in_transaction",
        },
        imported="KafkaShareDataSource dead_letter ensure_java ensure_python outcomes reject "
        "release",
    )
