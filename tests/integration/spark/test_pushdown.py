"""Why `kafka-share` has no filter push-down: Spark mixes up the filters of uses of one `load()`.

When this test fails, Spark has been corrected, and `KafkaShareBatchReader` can have `pushFilters`.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader

from tests.support.chosen_broker import LONG_WITH_A_JVM

pytestmark = LONG_WITH_A_JVM

SETTING = "spark.sql.python.filterPushdown.enabled"


class _Reader(DataSourceReader):
    """Rows 0 to 9; takes filters of the form ``number = constant``."""

    def __init__(self):
        self._numbers = range(10)

    def pushFilters(self, filters):  # noqa: N802
        for pushed in filters:
            if type(pushed).__name__ == "EqualTo":
                self._numbers = [pushed.value]
            elif type(pushed).__name__ != "IsNotNull":
                yield pushed

    def read(self, partition):
        for number in self._numbers:
            yield (number,)


class _Numbers(DataSource):
    @classmethod
    def name(cls):
        return "pushdown-numbers"

    def schema(self):
        return "number int"

    def reader(self, schema):
        return _Reader()


def test_spark_reads_a_frame_with_the_filter_of_its_earlier_use(spark):
    spark.dataSource.register(_Numbers)
    spark.conf.set(SETTING, "true")
    try:
        frame = spark.read.format("pushdown-numbers").load()
        assert frame.where("number = 3").count() == 1
        assert frame.count() == 1, "10 is right; see this module's text"
        again = spark.read.format("pushdown-numbers").load()
        assert again.where("number = 3").union(again).count() == 2, "11 is right"
    finally:
        spark.conf.unset(SETTING)
