"""The current state of a worker, for health checks, ``worker status`` and gauges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from sharegroup.client.net.cluster import Reachability

    # Imported for its type alone: most applications have no schedules.
    from sharegroup.worker.scheduling.partition_owner import ScheduleFigures

# Counters of a worker: plain numbers that the hot path increments and a scrape reads.
#
# Each route has one `HandlerCounts`. Counting a record costs two additions and two searches in the
# bounds of a histogram, about a microsecond. There is no lock, because only the thread of the event
# loop counts.


SECONDS_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
"""Upper bounds of the histograms, from the time of an empty handler to half an hour."""


CLASSES_MAX = 100
"""The number of classes of errors that are counted separately for each handler."""
OTHER_CLASSES = "other"


class Histogram:
    """The number of values up to each bound; ``counts`` has one more element, for the rest.

    >>> some = Histogram()
    >>> some.observe(0.002)
    >>> some.counts[SECONDS_BOUNDS.index(0.0025)], some.total
    (1, 0.002)
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count a value."""
        self.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True, eq=False)
class HandlerCounts:
    """The outcomes of one route's records in this process, since its start."""

    group: str
    handler: str
    running: int = 0
    """Records in the handler now."""
    succeeded: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    """Failed runs, by the class of the error with its module."""
    rejected: int = 0
    released: int = 0
    held: int = 0
    """Retries for which the record was held in memory, under its lock."""
    postponed: int = 0
    """Retries that were written to a retry topic."""
    dead_lettered: int = 0
    unreadable: int = 0
    filtered: int = 0
    """Records that `only` does not want."""
    expired: int = 0
    timed_out: int = 0
    lock_lost: int = 0
    unwritten: dict[Literal["result", "reply"], int] = field(default_factory=dict)
    """Results and replies that could not be written, for handlers that have them."""
    rate_is_assumed: bool | None = None
    """Whether the others that share the rate limit are not known; None without a shared limit."""
    circuit: str | None = None
    """The state of the circuit breaker; None if the handler has none."""
    opened: int = 0
    """How often the circuit breaker has opened."""
    parked: int = 0
    """Records that were written to a retry topic without a run, because it was open."""
    handling: Histogram = field(default_factory=Histogram)
    """The durations of handler runs."""
    queued: Histogram = field(default_factory=Histogram)
    """The time from a record's timestamp to the start of its handler."""

    def failed_with(self, error: str) -> None:
        """Count a failed run with an error of this class."""
        if error not in self.failed and len(self.failed) >= CLASSES_MAX:
            error = OTHER_CLASSES  # An application may make a class for each error.
        self.failed[error] = self.failed.get(error, 0) + 1


class Phase(StrEnum):
    """The phase of a worker's life cycle."""

    STARTING = "starting"
    RUNNING = "running"
    QUIET = "quiet"
    """The worker takes no more records and finishes those that it has."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    """A part of the worker ended with an error; no more records are handled."""


SENDING = "sending"
"""The phase of an application inside `App.client`, which has no worker."""


@dataclass(frozen=True, slots=True)
class WorkerGroupState:
    """The state of one share group in this process."""

    group: str
    member_id: str
    joined: bool
    """Whether all members of this process have joined the group."""
    waiting: int = 0
    """Records that were taken and whose handler has not begun."""
    running: int = 0
    """Records in handlers."""
    held: int = 0
    """Records that are held in memory, under their locks, for a retry."""
    held_bytes: int = 0
    blocked_writes: int = 0
    """Records whose retry or dead letter cannot be written now."""
    unrouted: Mapping[str, int] = field(default_factory=dict)
    """Records of the group's own topic without a handler in this process, by their outcome."""
    open_breakers: tuple[str, ...] = ()
    """The handlers that are not called now, because too many of their runs have failed."""


class AskFigures(NamedTuple):
    """The asks of this process."""

    waiting: int
    unawaited: int
    """Replies that came when nobody waited for them any more."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The state of the worker in this process."""

    phase: Phase
    groups: tuple[WorkerGroupState, ...] = ()
    schedules: tuple[ScheduleFigures, ...] = ()
    """The schedules that this process owns, or has made runs of."""
    asks: AskFigures | None = None
    """None before the first ask of this process."""

    @property
    def is_ready(self) -> bool:
        """Whether the worker takes records of all groups."""
        return self.phase is Phase.RUNNING and self.is_joined

    @property
    def is_joined(self) -> bool:
        """Whether its members have joined all groups."""
        return all(group.joined for group in self.groups)

    @property
    def is_alive(self) -> bool:
        """False if the worker has failed and the process must be restarted."""
        return self.phase is not Phase.FAILED


@dataclass(frozen=True, slots=True)
class AppHealth:
    """What a health check needs to know of an application in this process (`App.health`)."""

    phase: str
    """That of the worker; ``sending`` inside `App.client`, ``stopped`` outside of both."""
    absent_groups: tuple[str, ...] = ()
    """Groups of which this process is no member now, as far as their coordinators answer."""
    is_connected: bool = False
    """Whether a connection to any broker is open."""
    lost_brokers: Mapping[str, str] = field(default_factory=dict)
    """The error of each broker that could not be reached at the last attempt, by its address."""
    open_breakers: tuple[str, ...] = ()
    """The handlers whose circuit breaker is open; a restart would not help them."""

    @property
    def is_healthy(self) -> bool:
        """Whether the application does its work; one broker of several may be lost.

        A worker takes records of all its groups.  A sender may be without a connection until its
        first record.
        """
        if self.phase == SENDING:
            return self.is_connected or not self.lost_brokers
        return self.phase == Phase.RUNNING and self.is_connected and not self.absent_groups

    @property
    def facts(self) -> dict[str, object]:
        """The health as values for JSON."""
        return {
            "healthy": self.is_healthy,
            "phase": self.phase,
            "absent_groups": list(self.absent_groups),
            "lost_brokers": dict(self.lost_brokers),
            "open_breakers": list(self.open_breakers),
        }


class Observed(Protocol):
    """The part of a `Worker` that metrics and health checks read."""

    @property
    def state(self) -> WorkerState: ...

    @property
    def counts(self) -> tuple[HandlerCounts, ...]: ...


def health_of(
    reachability: Reachability | None, state: WorkerState | None, *, is_client: bool
) -> AppHealth:
    """Return the health of an application; without connections it is stopped."""
    if reachability is None:
        return AppHealth(Phase.STOPPED)
    is_connected, lost = reachability
    if state is None:
        phase: str = SENDING if is_client else Phase.STARTING
        return AppHealth(phase, (), is_connected, dict(lost))
    absent = tuple(group.group for group in state.groups if not group.joined)
    open_breakers = tuple(name for group in state.groups for name in group.open_breakers)
    return AppHealth(state.phase, absent, is_connected, dict(lost), open_breakers)
