"""The data source ``kafka-share`` for Spark.

Spark creates the data source in many processes: for the schema, for planning, for each batch that
is written.  So the constructor only stores the options.  They are checked, and the module of a
reader or writer is imported, when Spark asks for it.

    spark.readStream.format("kafka-share")        a member of a share group
    spark.read.format("kafka-share")              plain records between two offsets or times
    df.write, df.writeStream                      records through the producer

Spark finds an installed sharegroup by name, see the package ``pyspark_sharegroup``.  Otherwise call
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
from sharegroup.spark.options import batch_options, read_options, sink_options, stream_options
from sharegroup.spark.outcomes import marked
from sharegroup.spark.schema import spark_schema

FORMAT = "kafka-share"


class KafkaShareDataSource(DataSource):
    """The data source for the format ``kafka-share``, which creates readers and writers."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = dict(options)
        self._load = uuid.uuid4().hex
        """The id of this `load()`, which the reader and the schema in `foreachBatch` share."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a read."""
        return marked(spark_schema(read_options(self._options)), self._options, self._load)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader for ``spark.readStream``."""
        # Imported here because a process needs at most one of the readers and writers.
        from sharegroup.spark.stream_reader import KafkaShareStreamReader

        return KafkaShareStreamReader(stream_options(self._options), self._load)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader for ``spark.read``."""
        # Imported here because a process needs at most one of the readers and writers.
        from sharegroup.spark.batch_read import KafkaShareBatchReader

        return KafkaShareBatchReader(batch_options(self._options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for ``df.write``."""
        # Imported here because a process needs at most one of the readers and writers.
        from sharegroup.spark.sink import KafkaShareWriter

        if overwrite:
            raise InvalidConfig("mode overwrite: a topic can only be appended to; use append")
        return KafkaShareWriter(sink_options(self._options), schema)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002  Complete mode writes all again.
    ) -> DataSourceStreamArrowWriter:
        """Return the writer for ``df.writeStream``; Spark may pass the arguments by name."""
        # Imported here because a process needs at most one of the readers and writers.
        from sharegroup.spark.sink import KafkaShareStreamWriter

        return KafkaShareStreamWriter(sink_options(self._options), schema)
