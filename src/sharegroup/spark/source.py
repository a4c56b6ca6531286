"""The data source ``kafka-share``, as Spark finds it.

Spark makes one of these in many processes: to ask for the schema, to plan, for each batch that
is written.  So it keeps its options and does nothing else; what they mean is judged when Spark
says what it is going to do, and what that takes is imported then.

    spark.readStream.format("kafka-share")        a member of a share group
    spark.read.format("kafka-share")              plain records between two offsets
    df.write, df.writeStream                      records through the producer

An installed sharegroup is found by name, see the package ``pyspark_sharegroup``; otherwise
``spark.dataSource.register(KafkaShareDataSource)``.
"""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sharegroup.errors import InvalidConfig

FORMAT = "kafka-share"


class KafkaShareDataSource(DataSource):
    """See the module's text."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = dict(options)
        self._load = uuid.uuid4().hex
        """Goes with the object into the reader, and with the schema into `foreachBatch`."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` is called with."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of a read."""
        from sharegroup.spark.options import read_options
        from sharegroup.spark.outcomes import marked
        from sharegroup.spark.schema import spark_schema

        return marked(spark_schema(read_options(self._options)), self._options, self._load)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """For ``spark.readStream``."""
        from sharegroup.spark.options import stream_options
        from sharegroup.spark.stream_reader import KafkaShareStreamReader

        return KafkaShareStreamReader(stream_options(self._options), self._load)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """For ``spark.read``."""
        from sharegroup.spark.batch_read import KafkaShareBatchReader
        from sharegroup.spark.options import batch_options

        return KafkaShareBatchReader(batch_options(self._options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        from sharegroup.spark.options import sink_options
        from sharegroup.spark.sink import KafkaShareWriter

        if overwrite:
            raise InvalidConfig("mode overwrite: a topic can only be appended to; use append")
        return KafkaShareWriter(sink_options(self._options), schema)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002  Complete mode writes all again.
    ) -> DataSourceStreamArrowWriter:
        """For ``df.writeStream``; Spark calls it with names, too."""
        from sharegroup.spark.options import sink_options
        from sharegroup.spark.sink import KafkaShareStreamWriter

        return KafkaShareStreamWriter(sink_options(self._options), schema)
