"""How a worker stands now: what health checks, ``worker status`` and gauges look at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sharegroup.worker.seeing.counts import HandlerCounts


class Phase(StrEnum):
    """Where in its life a worker is."""

    STARTING = "starting"
    RUNNING = "running"
    QUIET = "quiet"
    """It takes no more records and finishes what it has."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    """A part ended that must not end; the worker handles nothing more."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """One share group in this process."""

    group: str
    member_id: str
    joined: bool
    """Whether the group's coordinator knows this member."""
    waiting: int = 0
    """Records that were taken and not begun."""
    running: int = 0
    """Records in handlers."""
    held: int = 0
    """Records that wait here, locked, for a retry."""
    held_bytes: int = 0
    blocked_writes: int = 0
    """Records whose retry or dead letter can't be written."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The whole process."""

    phase: Phase
    groups: tuple[GroupState, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether it takes records of every group."""
        return self.phase is Phase.RUNNING and all(one.joined for one in self.groups)

    @property
    def is_alive(self) -> bool:
        """Whether leaving it alone is right; else it is to be started anew."""
        return self.phase is not Phase.FAILED


class Observed(Protocol):
    """What can be seen of a `Worker`."""

    @property
    def state(self) -> WorkerState: ...

    @property
    def counts(self) -> tuple[HandlerCounts, ...]: ...
