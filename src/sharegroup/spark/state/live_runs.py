"""A row for each run of a share partition in its present state, replayed from the share state.

A run is a range of records with one state and delivery count.  It is the state that a broker would
have after a restart: acquisition locks are not durable, so records that members hold now have the
state that they had before.  A task reads one whole partition of ``__share_group_state``, because
the state of a share partition is a snapshot and the updates after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.loop_thread import LoopThread
from sharegroup.core.delivery.stored.share_states import UNDECIDED, ShareStates
from sharegroup.ids import SharePartitionKey, TopicId, topic_id_text
from sharegroup.internal_topics.share_state_codec import decode
from sharegroup.spark.batch_read import log_runs
from sharegroup.spark.decoded_read import decoded_records
from sharegroup.spark.executor_fetch import this_process
from sharegroup.spark.options import StateOptions
from sharegroup.spark.plan import PartitionRuns, RunsPartition
from sharegroup.spark.state.records import state_name

if TYPE_CHECKING:
    from uuid import UUID

ROWS_MAX = 10_000
"""Maximum number of rows of an Arrow batch."""

ARROW_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("topicId", pa.string()),
        ("partition", pa.int32()),
        ("startOffset", pa.int64()),
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("state", pa.string()),
        ("deliveryCount", pa.int32()),
        ("stateEpoch", pa.int32()),
        ("leaderEpoch", pa.int32()),
    ]
)


class LiveRunsReader(DataSourceReader):
    """Reads the present state of share partitions, for ``spark.read``."""

    def __init__(self, options: StateOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return a task for each partition of the share state that has records."""
        thread = LoopThread("kafka-share-plan")
        thread.enter()
        try:
            names, runs = thread.run(log_runs(self._options))
        finally:
            thread.leave()
        return [
            RunsPartition(
                [PartitionRuns(names[key.topic_id], key.topic_id, key.partition, runs[key])]
            )
            for key in sorted(runs)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the runs of the share partitions of one task, on an executor."""
        states = ShareStates()
        for _, records in decoded_records(self._options, partition):
            for record in records:
                if record.key is None:
                    continue  # No record of a coordinator, which always has a key.
                decoded = decode(record.key, record.value)
                if decoded is not None:
                    states.replay(decoded, log_offset=record.offset)
        if not len(states):
            return
        ids = {key.topic_id for key in states}
        names = this_process().thread.run(_topic_names(self._options, ids))
        rows: list[dict[str, Any]] = []
        for key in sorted(states):
            rows += live_rows(states, key, names.get(key.topic_id))
            if len(rows) >= ROWS_MAX:
                yield pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)


def live_rows(
    states: ShareStates, key: SharePartitionKey, topic: str | None
) -> Iterator[dict[str, Any]]:
    """Yield the runs of a share partition; one row without offsets if it has none."""
    # Without a leader epoch `read` records nothing and fences no leader, and needs no time.
    _, persisted = states.read(key, leader_epoch=None, wall_ms=0)
    row = {
        "group": key.group_id,
        "topic": topic,
        "topicId": topic_id_text(key.topic_id),
        "partition": key.partition,
        "startOffset": None if persisted.start_offset == UNDECIDED else persisted.start_offset,
        "stateEpoch": persisted.state_epoch,
        "leaderEpoch": states.read_summary(key).leader_epoch,
    }
    if not persisted.batches:
        yield row
    for batch in persisted.batches:
        yield {
            **row,
            "firstOffset": batch.first,
            "lastOffset": batch.end - 1,
            "state": state_name(batch.state),
            "deliveryCount": batch.delivery_count,
        }


async def _topic_names(options: StateOptions, ids: Iterable[TopicId]) -> Mapping[TopicId, str]:
    """Return the names of the topics that still exist and that the user may describe."""
    async with AdminClient(**options.client) as admin:
        described = await admin.describe_topics_by_id(cast("Iterable[UUID]", ids))
    return {
        TopicId(topic_id): topic.name
        for topic_id, topic in described.items()
        if isinstance(topic, TopicDescription)
    }
