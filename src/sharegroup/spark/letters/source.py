"""The data source ``kafka-share-letters``: the dead letters of workers and brokers as rows."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructField, StructType

from sharegroup.spark.options import letters_options

FORMAT = "kafka-share-letters"
METADATA_KEY = FORMAT
"""The metadata of the column ``offset``, with the addresses of the brokers, for `redrive`."""


class KafkaShareLettersDataSource(DataSource):
    """The data source for the format ``kafka-share-letters``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a read."""
        # Imported here because executors of other formats import this module, but need no letters.
        from sharegroup.spark.letters.rows import spark_schema

        # Options of batch reads only are refused by the stream's reader.
        options = letters_options(self._options)
        metadata = {METADATA_KEY: options.client["bootstrap_servers"]}
        return StructType(
            [
                StructField(column.name, column.dataType, metadata=metadata)
                if column.name == "offset"
                else column
                for column in spark_schema().fields
            ]
        )

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader for ``spark.read``."""
        # Imported here because a process needs at most one of the readers.
        from sharegroup.spark.batch_read import KafkaShareBatchReader
        from sharegroup.spark.letters.rows import read

        return KafkaShareBatchReader(letters_options(self._options), read)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader for ``spark.readStream``."""
        # Imported here because a process needs at most one of the readers.
        from sharegroup.spark.letters.rows import read
        from sharegroup.spark.log_stream import LogStreamReader

        return LogStreamReader(letters_options(self._options, is_stream=True), read)
