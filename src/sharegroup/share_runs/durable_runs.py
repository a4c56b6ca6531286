"""Reads the runs of share partitions from ``__share_group_state``, with plain fetches.

It works on any broker with share groups, because the records are Kafka's. It needs READ on that
topic. The result is the state that a broker would have after a restart: acquisition locks are not
durable, so records that members hold now are available in it.

    group ─▶ share partitions ─▶ partitions of __share_group_state ─▶ records, replayed ─▶ runs

Only the partitions of the state topic that have records of the wanted share partitions are read,
once for all groups, and records of other share partitions in them are skipped undecoded.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from uuid import UUID

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import ShareRun, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec, offsets_of
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.core.delivery.delivery import still_due
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.core.delivery.stored.share_states import UNDECIDED, ShareStates
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.ids import GroupId, SharePartitionKey, TopicId, share_state_partition
from sharegroup.internal_topics.share_state_codec import decode
from sharegroup.share_runs.share_runs import ShownSharePartition
from sharegroup.wire.batches.records import DecodedRecord
from sharegroup.wire.internal_topics.coordinator_records import PREFIX_BYTES, encode_key
from sharegroup.wire.internal_topics.share_state_records import ShareSnapshotKey

STATE_TOPIC = "__share_group_state"
KEPT_READS_MAX = 4
"""Sets of share partitions whose states are kept on a connection: mostly groups on open pages."""
KEPT_SECONDS = 30.0
"""States that nobody has read for this long are forgotten, after another such time at most."""


async def durable_runs(
    admin: AdminClient,
    reading: Cluster,
    group: str,
    wanted: Sequence[TopicPartition],
    *,
    runs_max: int,
) -> list[ShownSharePartition]:
    """Return the wanted share partitions of a group, with at most ``runs_max`` runs each."""
    found = await durable_runs_of_groups(admin, reading, {group: wanted}, runs_max=runs_max)
    return found[group]


async def durable_runs_of_groups(
    admin: AdminClient,
    reading: Cluster,
    wanted: Mapping[str, Sequence[TopicPartition]],
    *,
    runs_max: int,
    first_offset: int = 0,
    kept: KeptStates | None = None,
) -> dict[str, list[ShownSharePartition]]:
    """Return the wanted share partitions by group, with ``runs_max`` runs from ``first_offset``.

    With ``kept`` only what was written since the last read of the same share partitions is read.
    """
    places = {where for of_group in wanted.values() for where in of_group}
    ids = await _topic_ids(admin, {where.topic for where in places})
    ends = await _end_offsets(admin, places)
    keys = {
        (group, where): SharePartitionKey(GroupId(group), ids[where.topic], where.partition)
        for group, of_group in wanted.items()
        for where in of_group
    }
    kept = kept or KeptStates()
    async with kept.states(admin, reading, keys.values()) as states:
        # In threads, as everything here whose time grows with the runs.
        return {
            group: [
                await asyncio.to_thread(
                    _shown, where, keys[group, where], states,
                    log_end=ends[where], runs_max=runs_max, first_offset=first_offset,
                )
                for where in sorted(of_group)
            ]
            for group, of_group in wanted.items()
        }  # fmt: skip


async def _topic_ids(admin: AdminClient, names: Iterable[str]) -> dict[str, TopicId]:
    topics = await admin.describe_topics(names)
    ids = {}
    for name, described in topics.items():
        if isinstance(described, KafkaError):
            raise described
        if described.topic_id is None:
            raise UnknownTopicOrPartition(f"topic {name!r}: the broker reported no topic id for it")
        ids[name] = TopicId(described.topic_id)
    return ids


async def _end_offsets(
    admin: AdminClient, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    ends = {}
    listed = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
    for partition, result in listed.items():
        if not isinstance(result, ListedOffset):
            raise result
        ends[partition] = result.offset
    return ends


class KeptStates:
    """States of the share partitions that are read again and again: a read goes on after the last.

    A read costs what was written since the last one. One is made for each connection, because what
    its user read is kept here without another look at that user's rights.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[frozenset[SharePartitionKey], _ReadStates] = OrderedDict()

    @asynccontextmanager
    async def states(
        self, admin: AdminClient, reading: Cluster, keys: Iterable[SharePartitionKey]
    ) -> AsyncIterator[ShareStates]:
        """Give the present states, which do not change within the body."""
        wanted = frozenset(keys)
        kept = self._kept.get(wanted)
        if kept is None:
            kept = self._kept[wanted] = _ReadStates(wanted)
        self._kept.move_to_end(wanted)
        if len(self._kept) > KEPT_READS_MAX:
            self._kept.popitem(last=False)
        try:
            async with kept.lock:
                yield await kept.read_on(admin, reading)
        finally:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget)

    def _forget(self) -> None:
        """Forget what nobody has read for some time."""
        oldest_kept = time.monotonic() - KEPT_SECONDS
        for wanted in [w for w, kept in self._kept.items() if kept.read_at <= oldest_kept]:
            del self._kept[wanted]


class _ReadStates:
    """The states of some share partitions, and how far the state topic was read for them."""

    def __init__(self, keys: frozenset[SharePartitionKey]) -> None:
        self.lock = asyncio.Lock()
        self.read_at = time.monotonic()
        self._names = {_name_bytes(key): key for key in keys}
        self._begin(None, 0)

    def _begin(self, topic_id: UUID | None, partition_count: int) -> None:
        self._topic_id = topic_id
        self._partition_count = partition_count
        self._states = ShareStates()
        self._next_offsets: dict[TopicPartition, int] = {}

    async def read_on(self, admin: AdminClient, reading: Cluster) -> ShareStates:
        """Replay the records that were written since the last time."""
        described = (await admin.describe_topics([STATE_TOPIC]))[STATE_TOPIC]
        if isinstance(described, UnknownTopicOrPartition):
            raise UnknownTopicOrPartition(
                f"topic {STATE_TOPIC!r} does not exist, so no share group of this cluster has a "
                "state"
            )
        if not isinstance(described, TopicDescription):
            raise described
        count = len(described.partitions)
        places = {
            TopicPartition(STATE_TOPIC, share_state_partition(key, count))
            for key in self._names.values()
        }
        firsts = await offsets_of(reading, places, OffsetSpec.EARLIEST)
        ends = await offsets_of(reading, places, OffsetSpec.LATEST)
        if (self._topic_id, self._partition_count) != (described.topic_id, count) or any(
            not firsts[where] <= offset <= ends[where]
            for where, offset in self._next_offsets.items()
        ):
            # The topic is another one, the states are in other partitions of it, or a snapshot that
            # was not read here replaced what was.
            self._begin(described.topic_id, count)
        topic_id = None if described.topic_id is None else TopicId(described.topic_id)
        for where in sorted(places):
            # After a failure a range is replayed again, which changes nothing.
            first = self._next_offsets.get(where, firsts[where])
            await self._replay(reading, PartitionRange(where, first, ends[where], topic_id))
        self.read_at = time.monotonic()
        return self._states

    async def _replay(self, reading: Cluster, range_: PartitionRange) -> None:
        async for records in read_records(reading, range_):
            own = [
                record
                for record in records
                if record.key is not None and record.key[PREFIX_BYTES:] in self._names
            ]
            if own:
                try:
                    await asyncio.to_thread(_replay, self._states, own)
                except asyncio.CancelledError:
                    # The thread goes on, and must not replay beside the next read.
                    self._begin(None, 0)
                    raise
        self._next_offsets[range_.where] = range_.end


def _replay(states: ShareStates, records: Iterable[DecodedRecord]) -> None:
    for record in records:
        assert record.key is not None, "the key names the share partition"
        decoded = decode(record.key, record.value)
        if decoded is not None:
            states.replay(decoded, log_offset=record.offset)


def _name_bytes(key: SharePartitionKey) -> bytes:
    """Return the part of a record's key that names the share partition, without the type."""
    message = ShareSnapshotKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return encode_key(message)[PREFIX_BYTES:]


def _shown(
    where: TopicPartition,
    key: SharePartitionKey,
    states: ShareStates,
    *,
    log_end: int,
    runs_max: int,
    first_offset: int,
) -> ShownSharePartition:
    persisted = None
    if key in states:
        _, persisted = states.read(key, leader_epoch=None, wall_ms=0)
    if persisted is None or persisted.start_offset == UNDECIDED:
        return ShownSharePartition(where.topic, where.partition, None, None, log_end, 0, ())
    batches = still_due(persisted.batches, time.time_ns() // 1_000_000)
    restored = SharePartition.restore(persisted.start_offset, batches, log_end=log_end)
    counts = restored.snapshot()
    return ShownSharePartition(
        topic=where.topic,
        partition=where.partition,
        start_offset=counts.start_offset,
        end_offset=counts.end_offset,
        high_watermark=log_end,
        run_count=counts.run_count,
        runs=tuple(
            ShareRun(run.first, run.end - 1, run.value.state.name.lower(), run.value.delivery_count)
            for run in islice(restored.runs(first_offset), runs_max)
        ),
    )
