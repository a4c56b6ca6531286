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
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.fetch.record_reading import partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.core.delivery.stored.share_states import UNDECIDED, ShareStates
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.ids import GroupId, SharePartitionKey, TopicId, share_state_partition
from sharegroup.internal_topics.share_state_codec import decode
from sharegroup.share_runs.share_runs import ShownRun, ShownSharePartition
from sharegroup.wire.batches.records import DecodedRecord
from sharegroup.wire.internal_topics.coordinator_records import PREFIX_BYTES, encode_key
from sharegroup.wire.internal_topics.share_state_records import ShareSnapshotKey

STATE_TOPIC = "__share_group_state"


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
) -> dict[str, list[ShownSharePartition]]:
    """Return the wanted share partitions by group, with ``runs_max`` runs from ``first_offset``."""
    places = {where for of_group in wanted.values() for where in of_group}
    ids = await _topic_ids(admin, {where.topic for where in places})
    ends = await _end_offsets(admin, places)
    keys = {
        (group, where): SharePartitionKey(GroupId(group), ids[where.topic], where.partition)
        for group, of_group in wanted.items()
        for where in of_group
    }
    states = await _states(admin, reading, keys.values())
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


async def _states(
    admin: AdminClient, reading: Cluster, keys: Iterable[SharePartitionKey]
) -> ShareStates:
    """Replay the records of these share partitions."""
    described = (await admin.describe_topics([STATE_TOPIC]))[STATE_TOPIC]
    if isinstance(described, UnknownTopicOrPartition):
        raise UnknownTopicOrPartition(
            f"topic {STATE_TOPIC!r} does not exist, so no share group of this cluster has a state"
        )
    if not isinstance(described, TopicDescription):
        raise described
    names = {_name_bytes(key): key for key in keys}
    state_partitions = {
        share_state_partition(key, len(described.partitions)) for key in names.values()
    }
    states = ShareStates()
    for range_ in await partition_ranges(reading, STATE_TOPIC):
        if range_.where.partition not in state_partitions:
            continue
        async for records in read_records(reading, range_):
            own = [
                record
                for record in records
                if record.key is not None and record.key[PREFIX_BYTES:] in names
            ]
            if own:
                await asyncio.to_thread(_replay, states, own)
    return states


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
    restored = SharePartition.restore(persisted.start_offset, persisted.batches, log_end=log_end)
    counts = restored.snapshot()
    return ShownSharePartition(
        topic=where.topic,
        partition=where.partition,
        start_offset=counts.start_offset,
        end_offset=counts.end_offset,
        high_watermark=log_end,
        run_count=counts.run_count,
        runs=tuple(
            ShownRun(run.first, run.end - 1, run.value.state.name.lower(), run.value.delivery_count)
            for run in islice(restored.runs(first_offset), runs_max)
        ),
    )
