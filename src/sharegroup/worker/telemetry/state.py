"""The current state of a worker, for health checks, ``worker status`` and gauges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from sharegroup.worker.telemetry.counts import HandlerCounts


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


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The state of the worker in this process."""

    phase: Phase
    groups: tuple[WorkerGroupState, ...] = ()

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


class Observed(Protocol):
    """The part of a `Worker` that metrics and health checks read."""

    @property
    def state(self) -> WorkerState: ...

    @property
    def counts(self) -> tuple[HandlerCounts, ...]: ...
