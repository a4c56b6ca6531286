"""Counts the live processes of each group, from the heartbeats of the fleet (`sharegroup.fleet`).

    unknown --own heartbeat read--> settling --4 s--> known: one count for each group
                                                        |  reads fail: the last counts, for a minute
       ^-------- own heartbeat lost, or no read --------'

Rate limits with ``shared="fleet"`` are divided by these counts.  A process is settling until the
others have read its first heartbeat too and have made room for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from sharegroup.errors import KafkaError
from sharegroup.fleet.fleet import WORKERS_MAX, Heard, SeenWorker
from sharegroup.fleet.heartbeats import Departed
from sharegroup.worker.ports import WorkerClock
from sharegroup.worker.telemetry.state import Phase

log = logging.getLogger(__name__)

READ_SECONDS = 2.0
"""Interval of looks for heartbeats; each is one small request."""
SETTLED_SECONDS = 2 * READ_SECONDS
KEPT_SECONDS = 60.0
"""How long the last counts are used while the topic cannot be read."""
COUNTED = frozenset({Phase.STARTING, Phase.RUNNING})
"""The phases in which a process takes records."""


class BeatLog(Protocol):
    """The heartbeats of the application, in their order."""

    async def read(self) -> Sequence[Heard]:
        """Return what was written since the last call; raises KafkaError."""


class Peers:
    """The live processes of the application, as far as this one knows."""

    __slots__ = (
        "_clock", "_counts", "_heard_ms", "_many", "_own_id", "_own_since", "_read_at", "_seen",
    )  # fmt: skip

    def __init__(self, own_id: str, clock: WorkerClock) -> None:
        self._own_id = own_id
        self._clock = clock
        self._seen: dict[str, SeenWorker] = {}
        self._heard_ms = (0, 0.0)
        """The broker's time of the newest heartbeat, and when it was read."""
        self._own_since: float | None = None
        """Since when the own heartbeat is in the topic; None while it is not."""
        self._read_at = float("-inf")
        self._counts: Counter[str] = Counter()
        self._many = 0
        """Processes with more groups than a heartbeat names."""

    def take(self, records: Sequence[Heard]) -> None:
        """Apply the records that were written since the last read."""
        now = self._clock.now()
        for message, at_ms in records:
            if isinstance(message, Departed):
                self._seen.pop(message.worker_id, None)
            elif message.identity.worker_id in self._seen or len(self._seen) < WORKERS_MAX:
                self._seen[message.identity.worker_id] = SeenWorker(message, at_ms)
            if at_ms > self._heard_ms[0]:
                self._heard_ms = (at_ms, now)
        self._read_at = now
        newest_ms, heard_at = self._heard_ms
        # By the broker's time, so neither this machine's clock nor its pauses make others lost.
        broker_ms = newest_ms + round((now - heard_at) * 1000)
        for worker_id in [name for name, seen in self._seen.items() if seen.is_lost(broker_ms)]:
            del self._seen[worker_id]
        if self._own_id not in self._seen:
            self._own_since = None
        elif self._own_since is None:
            self._own_since = now
        others = [
            seen.identity
            for worker_id, seen in self._seen.items()
            if seen.beat.phase in COUNTED and worker_id != self._own_id
        ]
        self._many = sum(other.group_count > len(other.groups) for other in others)
        self._counts = Counter(
            group
            for other in others
            if other.group_count <= len(other.groups)
            for group in other.groups
        )

    def processes_of(self, group: str) -> int | None:
        """Return the number of live processes of a group, with this one; None if unknown."""
        now = self._clock.now()
        if self._own_since is None or now < self._own_since + SETTLED_SECONDS:
            return None
        if now > self._read_at + KEPT_SECONDS:
            return None
        return 1 + self._counts[group] + self._many


@asynccontextmanager
async def watching(peers: Peers, beats: BeatLog, clock: WorkerClock) -> AsyncIterator[None]:
    """Read the heartbeats of the fleet within the block."""
    task = asyncio.create_task(_watch(peers, beats, clock), name="peers")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def _watch(peers: Peers, beats: BeatLog, clock: WorkerClock) -> None:
    has_failed = False
    while True:
        try:
            peers.take(await beats.read())
            has_failed = False
        # A fault here must not end a worker that handles records.
        except Exception as error:
            # Faults of the network are common, and end; others have a traceback.
            trace = None if isinstance(error, KafkaError) else error
            log.log(
                logging.DEBUG if has_failed else logging.WARNING,
                "event=rate.fleet_unread error=%r effect='shared rate limits use the last number "
                "of processes for %g s, then assumed_processes' action='heartbeats are read "
                "again; the user needs READ on the topic of the workers'",
                error,
                KEPT_SECONDS,
                exc_info=trace,
            )
            has_failed = True
        await clock.sleep_until(clock.now() + READ_SECONDS)
