"""The data source ``kafka-share-state``: records of internal topics, or the share state."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sharegroup.spark.options import GROUP_RUNS, RECORDS, SHARE_PARTITIONS, state_options

FORMAT = "kafka-share-state"


class KafkaShareStateDataSource(DataSource):
    """The data source for the format ``kafka-share-state``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the view."""
        # Imported here because a process needs at most one of the views.
        from sharegroup.spark.state import group_runs, live_runs, records

        schemas = {
            RECORDS: records.ARROW_SCHEMA,
            SHARE_PARTITIONS: live_runs.ARROW_SCHEMA,
            GROUP_RUNS: group_runs.ARROW_SCHEMA,
        }
        return from_arrow_schema(schemas[state_options(self._options).view])

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader for ``spark.read``."""
        # Imported here because a process needs at most one of the readers.
        from sharegroup.spark.batch_read import KafkaShareBatchReader
        from sharegroup.spark.state import group_runs, live_runs, records

        options = state_options(self._options)
        if options.view == GROUP_RUNS:
            return group_runs.GroupRunsReader(options)
        if options.view == SHARE_PARTITIONS:
            return live_runs.LiveRunsReader(options)
        return KafkaShareBatchReader(options, records.read)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader for ``spark.readStream``."""
        # Imported here because a process needs at most one of the readers.
        from sharegroup.spark.log_stream import LogStreamReader
        from sharegroup.spark.state import records

        return LogStreamReader(state_options(self._options, is_stream=True), records.read)
