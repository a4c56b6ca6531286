"""Brokers that break one promise each: the checker has to find every one of them.

A mutant changes one thing of the real broker, in this process, for as long as its context is
open.  It names the promise that it breaks; seeds are run until somebody says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kio.static.primitive import i8

from sharegroup.broker.handlers.share import described_runs
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share.lock_expiry import LockExpiry
from sharegroup.broker.share.share_coordinator import ShareCoordinator
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.client.share.ranges import share_ranges
from sharegroup.core.delivery import delivery, share_partition
from sharegroup.core.delivery.delivery import Acquired, Delta, RecordState
from sharegroup.core.delivery.key_order import KeyOrder
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.core.delivery.stored.share_states import PersistedState, StateSummary
from sharegroup.core.groups.modern import modern_groups, reconciliation
from sharegroup.core.groups.share import heartbeat as share_group_heartbeat, share_groups
from sharegroup.core.sessions.share_session import ShareSessions
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark import offsets, share_stream
from sharegroup.spark.share_stream import ShareStream
from sharegroup.storage.log.fence import Fence
from sharegroup.storage.log.log_reader import LogReader
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.recovery import checkpoint as directory_offsets
from sharegroup.storage.sync.syncer import SyncWork
from sharegroup.storage.sync.tickets import Ticket
from tests.sim.swarm import Plan

NO_WORK = SyncWork((), ())


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: in ``owner``, ``name`` becomes what ``change`` makes of the original."""

    breaks: str
    what: str
    owner: Any
    name: str
    change: Callable[[Any], Any]
    needs: tuple[str, ...] = ()
    """Faults and features of a run that can show it."""

    def __str__(self) -> str:
        return f"{self.breaks}: {self.what}"

    def is_shown_by(self, plan: Plan) -> bool:
        """Whether a run by this plan can show it."""
        traits = {*plan.faults, *plan.features, *plan.jobs, f"locks_max={plan.locks_max}"}
        if plan.modern_members:
            traits |= set(MODERN)
        if plan.by_key and plan.offset_reset == "earliest":
            traits |= set(BY_KEY)
        if plan.delays:
            traits.add("delays")
        if plan.spark_query:
            traits |= set(SPARK)
        return set(self.needs) <= traits

    @contextmanager
    def alive(self) -> Iterator[None]:
        original = getattr(self.owner, self.name)
        setattr(self.owner, self.name, self.change(original))
        try:
            yield
        finally:
            setattr(self.owner, self.name, original)


def _value(value: Any) -> Callable[[Any], Any]:
    """Instead of the original: a function that always says this."""
    return lambda _: lambda *args, **options: value


async def _at_once(*_: Any) -> None:
    """Confirm before the disk has it."""


def _unsynced(kept: Callable[[SyncWork], SyncWork]) -> Callable[[Any], Any]:
    """Less is synced than should be."""

    def mutate(original: Any) -> Any:
        return lambda self: kept(original(self))

    return mutate


def _confirmed_at_once(original: Any) -> Any:
    def append(self: PartitionLog, *args: Any, **options: Any) -> Ticket:
        ticket: Ticket = original(self, *args, **options)
        return Ticket(ticket.base_offset, ticket.end_offset, done=True)

    return append


def _another_byte(original: Any) -> Any:
    def read(self: LogReader, *args: Any, **options: Any) -> bytes:
        data = bytearray(original(self, *args, **options))
        if data:
            data[-2] ^= 1
        return bytes(data)

    return read


def _early(original: Any) -> Any:
    """Locks end half a second before they should."""

    def expire(self: SharePartition, *, now_ms: int, **options: Any) -> Any:
        return original(self, now_ms=now_ms + 500, **options)

    return expire


def _early_look(original: Any) -> Any:
    def next_expiry_ms(self: SharePartition) -> int | None:
        found: int | None = original(self)
        return None if found is None else found - 500

    return next_expiry_ms


def _owner_only(original: Any) -> Any:
    """The owner is checked, the end of its lock is not."""
    return lambda run, member_id, now_ms: original(run, member_id, 0)


def _one_more(original: Any) -> Any:
    def acquire(self: SharePartition, *args: Any, **options: Any) -> Any:
        done = original(self, *args, **options)
        ranges = tuple(Acquired(a, b, count + 10) for a, b, count in done.ranges)
        return done._replace(ranges=ranges)

    return acquire


def _written(change: Callable[[Delta], Delta]) -> Callable[[Any], Any]:
    """The coordinator keeps something else than it was told."""

    def mutate(original: Any) -> Any:
        def write(self: ShareCoordinator, key: Any, state_epoch: int, delta: Delta) -> Any:
            return original(self, key, state_epoch, change(delta))

        return write

    return mutate


def _without_counts(delta: Delta) -> Delta:
    return delta._replace(
        batches=tuple(batch._replace(delivery_count=0) for batch in delta.batches)
    )


def _accepted_as_available(delta: Delta) -> Delta:
    return delta._replace(
        batches=tuple(
            batch._replace(state=RecordState.AVAILABLE)
            if batch.state is RecordState.ACKNOWLEDGED
            else batch
            for batch in delta.batches
        )
    )


def _one_too_far(original: Any) -> Any:
    def summary(self: ShareCoordinator, key: Any) -> StateSummary:
        found: StateSummary = original(self, key)
        return replace(found, start_offset=found.start_offset + 1)

    return summary


def _more_complete(original: Any) -> Any:
    def summary(self: ShareCoordinator, key: Any) -> StateSummary:
        found: StateSummary = original(self, key)
        return replace(found, delivery_complete_count=found.delivery_complete_count + 2)

    return summary


def _restored_without_counts(original: Any) -> Any:
    """After a restart every record that was given back is new."""

    def read(self: ShareCoordinator, key: Any) -> PersistedState:
        found: PersistedState = original(self, key)
        batches = tuple(batch._replace(delivery_count=0) for batch in found.batches)
        return replace(found, batches=batches)

    return read


def _without_bounds(original: Any) -> Any:
    def limits(self: GroupSettings, *args: Any) -> Any:
        return replace(original(self, *args), in_flight_max=1_000_000)

    return limits


def _never_paused(original: Any) -> Any:
    def limits(self: GroupSettings, *args: Any) -> Any:
        return replace(original(self, *args), paused=False)

    return limits


def _half_as_long(original: Any) -> Any:
    return lambda now_ms, delay_ms: original(now_ms, delay_ms // 2)


def _any_epoch(_: Any) -> Any:
    def expected(self: ShareSessions, key: Any, epoch: int) -> Any:
        return self._find(key)

    return expected


def _all_for_the_first(original: Any) -> Any:
    def assign(subscriptions: Any, read: Any, partitions: Any) -> Any:
        first = min(subscriptions)
        alone = original({first: subscriptions[first]}, {first: read[first]}, partitions)
        return {member_id: alone.get(member_id, frozenset()) for member_id in subscriptions}

    return assign


def _for_all_groups(original: Any) -> Any:
    """What one group settles is settled for the others, too."""

    def acknowledge(self: SharePartitions, live: Any, member_id: Any, acks: Any) -> Any:
        done = original(self, live, member_id, acks)
        for other in list(self):
            if other.key.topic_id == live.key.topic_id and other is not live:
                _settle(other.state, acks)
        return done

    return acknowledge


def _settle(state: SharePartition, acks: Any) -> None:
    """Settle what lies there as if its own group had said so."""
    end = max((ack.end for ack in acks if ack.types == (AcknowledgeType.ACCEPT,)), default=0)
    if end > state.start_offset:
        state.move_log_start(min(end, state.end_offset))


MODERN = ("modern_members",)
BY_KEY = ("by_key",)
"""What shows a mutant of consumer groups of KIP-848."""


def _epoch_of_before(original: Any) -> Any:
    """A member that changes nothing is told an older epoch."""

    def heartbeat(self: Any, request: Any, *args: Any, **options: Any) -> Any:
        records, reply = original(self, request, *args, **options)
        is_known = not records and request.member_epoch > 1
        return records, replace(reply, member_epoch=reply.member_epoch - is_known)

    return heartbeat


SPARK = ("spark_query",)
"""What shows a mutant of Spark queries."""


def _available_run(original: Any) -> Any:
    """A run is listed as available, whatever it is."""
    state = i8(RecordState.AVAILABLE)
    return lambda *run: replace(original(*run), state=state, member_id=None)


def _settled_at_once(_: Any) -> Any:
    """A batch is settled when it is acquired."""

    async def acquire_ahead(self: ShareStream, end: Any, records_max: int) -> None:
        await self._settle(end)

    return acquire_ahead


MUTANTS = (
    Mutant(
        "L1",
        "nothing is synced",
        PartitionLog,
        "begin_sync",
        _unsynced(lambda _: NO_WORK),
        ("power",),
    ),
    Mutant(
        "L1",
        "folders are not synced",
        PartitionLog,
        "begin_sync",
        _unsynced(lambda work: SyncWork(work.files)),
        ("power",),
    ),
    Mutant(
        "L1",
        "produce is confirmed too early",
        PartitionLog,
        "append",
        _confirmed_at_once,
        ("sync_fails",),
    ),
    Mutant("L1", "a byte is another one", LogReader, "read", _another_byte),
    Mutant(
        "L2",
        "the log start is forgotten",
        directory_offsets,
        "read_checkpoint",
        lambda _: lambda *_: {},
        ("restart", "delete_records"),
    ),
    Mutant(
        "L3",
        "sequences are not checked",
        PartitionLog,
        "_check_producer",
        _value(None),
        ("pause",),
    ),
    Mutant(
        "L4",
        "what is open is stable",
        PartitionLog,
        "last_stable_offset",
        lambda _: property(lambda self: self.high_watermark),
        ("transactions",),
    ),
    Mutant(
        "L4",
        "nothing was aborted",
        PartitionLog,
        "aborted_transactions",
        _value(()),
        ("transactions",),
    ),
    Mutant("S1", "the owner is not checked", share_partition, "check_held", _value(None)),
    Mutant(
        "S1",
        "the lock's end is not checked",
        share_partition,
        "check_held",
        _owner_only,
        ("pause",),
    ),
    Mutant("S1", "locks end early", SharePartition, "expire", _early),
    Mutant(
        "S2",
        "acks are confirmed too early",
        SharePartitions,
        "_durable",
        lambda _: _at_once,
        ("sync_fails",),
    ),
    Mutant(
        "S2", "accepts are not kept", ShareCoordinator, "write", _written(_accepted_as_available)
    ),
    Mutant("S3", "locks never end", LockExpiry, "watch", _value(None)),
    Mutant("S4", "delivery counts are too high", SharePartition, "acquire", _one_more),
    Mutant(
        "S4",
        "delivery counts are not kept",
        ShareCoordinator,
        "write",
        _written(_without_counts),
        ("restart",),
    ),
    Mutant("S5", "the start offset is too high", ShareCoordinator, "summary", _one_too_far),
    Mutant(
        "S6", "locks are not counted", GroupSettings, "limits", _without_bounds, ("locks_max=100",)
    ),
    Mutant("S7", "the lag is too small", ShareCoordinator, "summary", _more_complete),
    Mutant(
        "S8",
        "a restart forgets counts",
        ShareCoordinator,
        "read",
        _restored_without_counts,
        ("restart",),
    ),
    Mutant("S13", "every record is free", KeyOrder, "_link", _value(None), BY_KEY),
    Mutant(
        "S14", "all runs are listed as available", described_runs, "_on_the_wire", _available_run
    ),
    Mutant(
        "S15",
        "a pause changes nothing",
        GroupSettings,
        "limits",
        _never_paused,
        ("group_configs",),
    ),
    Mutant("S16", "delays are half as long", delivery, "due_time", _half_as_long, ("delays",)),
    Mutant("S9", "any session epoch will do", ShareSessions, "_expected", _any_epoch),
    Mutant("S9", "any member epoch will do", share_groups, "check_member", _value(None)),
    Mutant(
        "S10",
        "no letter is written",
        GroupSettings,
        "dead_letter_topic",
        _value(None),
        ("dead_letters",),
    ),
    Mutant("S11", "groups settle for each other", SharePartitions, "acknowledge", _for_all_groups),
    Mutant(
        "V1",
        "a disk that failed is never tried again",
        Fence,
        "_start_probe",
        _value(None),
        ("sync_fails",),
    ),
    Mutant("V2", "one member gets it all", share_group_heartbeat, "assign", _all_for_the_first),
    Mutant(
        "M1", "epochs go down", modern_groups.ModernGroups, "heartbeat", _epoch_of_before, MODERN
    ),
    Mutant("M2", "partitions move at once", reconciliation, "_still_owns", _value(False), MODERN),
    Mutant("M3", "anybody may commit", modern_groups, "check_commit", _value(None), MODERN),
    Mutant(
        "Q1",
        "processed records are not recognised",
        share_stream,
        "recognise",
        lambda _: lambda acquired, carry: (acquired, {}),
        SPARK,
    ),
    Mutant(
        "Q1",
        "locks that end while a batch waits are not noticed",
        share_ranges,
        "_within",
        lambda _: lambda ranges, offsets: tuple(ranges),
        (*SPARK, "group_configs", "pause"),
    ),
    Mutant("Q2", "acquired is settled", ShareStream, "acquire_ahead", _settled_at_once, SPARK),
    Mutant(
        "Q3",
        "delivery counts are not logged",
        offsets,
        "_counts",
        lambda _: lambda runs: [1, len(runs)],
        SPARK,
    ),
)

SHOWS_AS = {"S3": ("V2", "V3"), "S11": ("S2", "S3", "S5", "S7", "V3")}
"""What the checker says where that is not the promise's own name: a lost record is one that
keeps the lag from going to 0, and groups are checked each by itself."""
