"""A row for each run of a share group in its present state, as its coordinator lists them.

A run is a range of records with one state and delivery count, here also with the member that holds
it.  Only our broker lists them; the runs of a page are of one moment, two pages are not.  The runs
are read by one task, a page at a time, because a page is the unit of the broker's work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sharegroup.client.admin.groups import list_share_group_offsets
from sharegroup.client.admin.share_group_runs import list_share_group_runs
from sharegroup.client.net.cluster import Cluster
from sharegroup.errors import KafkaError, UnsupportedVersion
from sharegroup.share_runs.broker_runs import run_pages
from sharegroup.share_runs.share_runs import ShownSharePartition
from sharegroup.spark.decoded_read import from_async
from sharegroup.spark.executor_fetch import this_process
from sharegroup.spark.options import StateOptions

ARROW_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("startOffset", pa.int64()),
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("state", pa.string()),
        ("deliveryCount", pa.int32()),
        ("memberId", pa.string()),
        ("lockMsLeft", pa.int64()),
    ]
)


class GroupRunsReader(DataSourceReader):
    """Reads the runs of a share group, for ``spark.read``."""

    def __init__(self, options: StateOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the runs, on an executor."""
        process = this_process()
        group = self._options.group
        assert group is not None, "the options were checked"
        with process.cluster(self._options) as cluster:
            pages = _pages(cluster, group, frozenset(self._options.topics))
            for page in from_async(process.thread, pages):
                if batch := _rows(group, page):
                    yield batch


async def _pages(
    cluster: Cluster, group: str, topics: frozenset[str]
) -> AsyncIterator[ShownSharePartition]:
    listed = (await list_share_group_offsets(cluster, {group: None}))[group]
    if isinstance(listed, KafkaError):
        raise listed
    wanted = [where for where in listed if not topics or where.topic in topics]
    try:
        async for page in run_pages(partial(list_share_group_runs, cluster), group, wanted):
            yield page
    except UnsupportedVersion as error:
        raise UnsupportedVersion(f"{error}, and view=sharePartitions here") from error


def _rows(group: str, page: ShownSharePartition) -> pa.RecordBatch | None:
    """Return the runs of a page; None if it has none."""
    rows = [
        {
            "group": group,
            "topic": page.topic,
            "partition": page.partition,
            "startOffset": page.start_offset,
            "firstOffset": run.first_offset,
            "lastOffset": run.last_offset,
            "state": run.state,
            "deliveryCount": run.delivery_count,
            "memberId": run.member_id,
            "lockMsLeft": run.lock_ms_left,
        }
        for run in page.all_runs
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA) if rows else None
