"""The runs of a share partition in an answer to DescribeShareGroupOffsets (our tagged fields).

    in use        the state in memory, with members and locks
    not in use    the stored state: nobody holds a record of it

Those of one share partition are collected in one call, so they are of one moment, and encoded in
steps.  All answers have at most `RUNS_MAX` runs; a share partition whose runs were cut says from
which offset another request continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kio.static.primitive import i8, i16, i32, i64

from sharegroup.broker.handlers.parts import HasClock, HasShareCoordinator, HasSharePartitions
from sharegroup.core.delivery.delivery import InFlightState, RecordState
from sharegroup.core.delivery.offset_runs import Run, first_runs
from sharegroup.core.delivery.stored.share_states import Known
from sharegroup.ids import SharePartitionKey
from sharegroup.steps import Steps, of_each
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.wire.messages.describe_share_group_offsets_v1 import OffsetRun, PartitionRuns

RUNS_MAX = 1_000
"""Maximum number of runs in a response, however many the request asks for."""

NOTHING = PartitionRuns(run_count=i32(0))
"""The answer about a partition that does not exist."""


class RunParts(HasClock, HasShareCoordinator, HasSharePartitions, Protocol):
    """What the runs of a share partition touch of the broker."""


class RunRoom:
    """The number of runs for which a response has room."""

    __slots__ = ("left",)

    def __init__(self, wanted: int) -> None:
        self.left = min(wanted, RUNS_MAX)


def described_runs(
    parts: RunParts,
    key: SharePartitionKey,
    log: PartitionLog,
    *,
    start_offset: int,
    first_offset: int,
    room: RunRoom,
) -> Steps[PartitionRuns]:
    """Return the runs from ``first_offset`` on that there is room for.

    ``start_offset`` is that of the listing; -1: the group has no offset yet.
    """
    high_watermark = i64(log.high_watermark)
    if start_offset < 0:
        return PartitionRuns(high_watermark=high_watermark, run_count=i32(0))
    first = max(first_offset, start_offset, log.start_offset)
    live = parts.share_partitions.loaded(key)
    runs: Iterator[Run[InFlightState]]
    if live is not None:
        runs = live.state.runs(first)
        counts = live.state.snapshot()
        end_offset, run_count = counts.end_offset, counts.run_count
    else:
        stored = parts.share_coordinator.runs(key)
        # Offsets that the log lost will be written again with other records.
        end_offset, run_count = min(stored.end, log.end_offset), len(stored)
        wall_ms = parts.clock.wall_ms()
        runs = (
            Run(run.first, run.end, _in_flight(run.value, wall_ms))
            for run in stored.between(first, end_offset)
        )
    now_ms = parts.clock.now_ms()
    shown, following = first_runs(runs, room.left)
    room.left -= len(shown)
    return PartitionRuns(
        # Deleted records cannot be delivered.
        end_offset=i64(max(end_offset, start_offset, log.start_offset)),
        high_watermark=high_watermark,
        run_count=i32(run_count),
        next_offset=i64(-1 if following is None else following),
        runs=(yield from of_each(lambda run: _on_the_wire(run, now_ms), shown)),
    )


def _in_flight(known: Known, wall_ms: int) -> InFlightState:
    """Return the state that stored records would have in memory: nobody holds them."""
    count, state, *rest = known
    due_ms = rest[0] if rest else 0
    is_delayed = state is RecordState.AVAILABLE and due_ms > wall_ms
    return InFlightState(RecordState.DELAYED if is_delayed else state, max(0, count))


def _on_the_wire(run: Run[InFlightState], now_ms: int) -> OffsetRun:
    state = run.value
    is_acquired = state.state is RecordState.ACQUIRED
    return OffsetRun(
        first_offset=i64(run.first),
        last_offset=i64(run.end - 1),
        state=i8(state.state),
        delivery_count=i16(state.delivery_count),
        member_id=state.member_id if is_acquired else None,
        lock_ms_left=i64(max(0, state.lock_deadline_ms - now_ms) if is_acquired else -1),
    )
