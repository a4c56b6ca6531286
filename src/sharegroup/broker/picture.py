"""The share-group engine at one moment, frozen: for metrics, dashboards and whoever debugs.

    EnginePicture
      └─ GroupPicture            who is in the group, as ShareGroupDescribe tells it
           └─ SharePartitionPicture      offsets, counts, whether it is full
                └─ RunPicture            which offsets are where in their life, and whose

It is taken in one plain call on the broker's own thread, so all of it is true together: no
acknowledgement lies between two of its numbers.  Nothing in it changes afterwards, and nothing
refers to the engine, so it may be handed to another thread.  Share partitions that nobody has
fetched from since the broker started are not loaded and not in it.

Cheap without runs: some microseconds for each group, member and loaded share partition.  Runs
cost about one microsecond each and there can be 20,000 in every share partition, so they are
given only on request and only up to ``runs_max`` altogether; what did not fit is counted.

Times are the broker's monotonic milliseconds, as lock ends are; ``wall_ms - now_ms`` turns
them into time of day.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from sharegroup.broker.parts import Parts
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.core.delivery import RecordState
from sharegroup.core.share_group import GroupDescription
from sharegroup.core.share_partition import Snapshot
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicName


@dataclass(frozen=True, slots=True)
class RunPicture:
    """Offsets ``[first, end)`` in one state; member and lock end are None unless ACQUIRED."""

    first: int
    end: int
    state: RecordState
    delivery_count: int
    member_id: MemberId | None
    lock_until_ms: int | None


@dataclass(frozen=True, slots=True)
class SharePartitionPicture:
    """One loaded share partition.

    ``is_full``: so many runs are held that no new record is delivered until some settle; it
    goes on by itself.  ``is_archiving``: records wait for their copy in the dead-letter queue.
    ``timed_out_count`` counts the records whose lock ran out since the share partition was loaded,
    ``runs_left_out`` the runs beyond those asked for.
    """

    key: SharePartitionKey
    topic_name: TopicName
    state_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    counts: Snapshot
    is_full: bool
    next_lock_end_ms: int | None
    timed_out_count: int
    runs: tuple[RunPicture, ...]
    runs_left_out: int

    @property
    def is_archiving(self) -> bool:
        return self.counts.archiving_count > 0


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """One share group; ``description`` is None for a group that only has sessions here."""

    group_id: GroupId
    description: GroupDescription | None
    share_partitions: tuple[SharePartitionPicture, ...]


@dataclass(frozen=True, slots=True)
class EnginePicture:
    """All share groups of the broker; see the module's text."""

    now_ms: int
    wall_ms: int
    session_count: int
    session_partition_count: int
    parked_count: int
    groups: tuple[GroupPicture, ...]

    @property
    def runs_left_out(self) -> int:
        """How many runs ``runs_max`` kept out."""
        return sum(
            share_partition.runs_left_out
            for group in self.groups
            for share_partition in group.share_partitions
        )


def picture(parts: Parts, *, group_id: GroupId | None = None, runs_max: int = 0) -> EnginePicture:
    """The engine now: of one group or (None) of all, with up to ``runs_max`` runs."""
    coordinator = parts.share_group_coordinator
    listed = [group.group_id for group in coordinator.list_groups()]
    live: dict[GroupId, list[LiveSharePartition]] = {one: [] for one in listed}
    for each in parts.share_partitions:
        live.setdefault(each.key.group_id, []).append(each)
    groups: list[GroupPicture] = []
    known = frozenset(listed)
    for one in sorted(live if group_id is None else live.keys() & {group_id}):
        share_partitions: list[SharePartitionPicture] = []
        for each in sorted(live[one], key=lambda each: (each.topic_name, each.key.partition)):
            share_partitions.append(_share_partition(parts, each, runs_max))
            runs_max -= len(share_partitions[-1].runs)
        description = coordinator.describe(one) if one in known else None
        groups.append(GroupPicture(one, description, tuple(share_partitions)))
    return EnginePicture(
        now_ms=parts.clock.now_ms(),
        wall_ms=parts.clock.wall_ms(),
        session_count=len(parts.share_sessions),
        session_partition_count=parts.share_sessions.partition_count(),
        parked_count=len(parts.waiting),
        groups=tuple(groups),
    )


def _share_partition(
    parts: Parts, live: LiveSharePartition, runs_max: int
) -> SharePartitionPicture:
    counts = live.state.snapshot()
    runs = tuple(
        RunPicture(
            first,
            end,
            value.state,
            value.delivery_count,
            value.member_id or None,
            value.lock_until_ms if value.state is RecordState.ACQUIRED else None,
        )
        for first, end, value in islice(live.state.runs(), max(0, runs_max))
    )
    return SharePartitionPicture(
        key=live.key,
        topic_name=live.topic_name,
        state_epoch=live.state_epoch,
        log_start_offset=live.log.start_offset,
        last_stable_offset=live.log.last_stable_offset,
        high_watermark=live.log.high_watermark,
        counts=counts,
        is_full=live.state.is_full(parts.group_settings.limits(live.key.group_id)),
        next_lock_end_ms=live.state.next_expiry_ms(),
        timed_out_count=live.timed_out_count,
        runs=runs,
        runs_left_out=counts.run_count - len(runs),
    )
