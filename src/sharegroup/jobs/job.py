"""A job: a repair of many records that outlives the process that runs it.

                   start                    resume
                     │           ┌──────────────────────────────┐
                     ▼           ▼                              │
                  waiting ──▶ running ──▶ done, failed, aborted ┘
                                 │                       ▲
                                 └──▶ aborting ──────────┘

A job is aborting while somebody has asked its runner to end it.  A running job whose runner has
not been heard of for `ABANDONED_MS` is abandoned: another runner may take it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from sharegroup.errors import KafkaError

Document: TypeAlias = Mapping[str, Any]
"""An object of JSON."""

ABANDONED_MS = 30_000
"""Time without a record of its runner after which a running job is abandoned.

The clocks of two machines differ.  A job that is taken too early is only repeated work: the runner
before is fenced.
"""
EVERYTHING = "everything"
"""The filter of a job that is for all records, as an explicit wish: ``{"everything": true}``."""


class JobNotFound(KafkaError):
    """There is no job with this id."""


class JobTaken(KafkaError):
    """Another runner has the job."""


class JobEnded(KafkaError):
    """The job has ended, so it can be neither run nor aborted."""


class JobState(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    ABORTING = "aborting"
    DONE = "done"
    FAILED = "failed"
    ABORTED = "aborted"

    @property
    def is_end(self) -> bool:
        """Whether no runner takes a job in this state."""
        return self in (JobState.DONE, JobState.FAILED, JobState.ABORTED)


class Position(NamedTuple):
    """How far a job has read one partition."""

    partition: int
    next: int
    """The first offset that is not processed."""
    end: int
    """The end of the partition when the job first ran, where the job ends, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a job does; `redrive_request` and `purge_request` make them."""

    kind: str
    topic: str
    """The topic whose records the job is about."""
    filter: Document
    """The conditions for records; never empty, but `EVERYTHING` may be said."""
    options: Document = field(default_factory=dict)

    @property
    def filter_text(self) -> str:
        """The filter in one line."""
        if self.filter == {EVERYTHING: True}:
            return EVERYTHING
        return " ".join(f"{name}={value}" for name, value in sorted(self.filter.items()))


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job would do now."""

    count: int
    """The number of records that it would send or delete."""
    result: Document
    """The result that it would have, as in `Job.result`."""


class JobProgress(NamedTuple):
    """How much of a job is done."""

    counted: int | None
    """The number of matching records that a plan counted before the start; None: no plan did."""
    done: int
    """The number of matching records that are processed, also those that could not be sent."""

    @property
    def remaining(self) -> int | None:
        """The number of counted records that are not processed; None if they were not counted."""
        return None if self.counted is None else max(0, self.counted - self.done)


NOTHING_DONE = JobProgress(None, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as its last committed record says."""

    id: str
    request: JobRequest
    started_by: str
    created_ms: int
    state: JobState = JobState.WAITING
    updated_ms: int = 0
    """When this was written, by its runner or by a change of its state."""
    ended_ms: int | None = None
    runner: str | None = None
    """The runner that has it or had it last: host, process id and a random text."""
    progress: JobProgress = NOTHING_DONE
    result: Document = field(default_factory=dict)
    """The counts of its kind so far."""
    error: str | None = None
    """Why it failed, or who aborted it."""
    resumes: int = 0
    """How often it was resumed; a request to abort is for one of these."""
    topic_id: str | None = None
    """The id of the topic that it works on; None before it first ran."""
    positions: tuple[Position, ...] = ()

    def is_abandoned(self, now_ms: int) -> bool:
        """Whether its runner has not been heard of for `ABANDONED_MS`."""
        running = self.state in (JobState.RUNNING, JobState.ABORTING)
        return running and now_ms - self.updated_ms >= ABANDONED_MS


@dataclass(frozen=True, slots=True)
class JobListing:
    """The jobs of a cluster, the newest first."""

    jobs: tuple[Job, ...]
    is_current: bool = True
    """Whether all records were read; False while a runner's transaction hides the newest ones."""
    unreadable: int = 0
    """The number of records of the topic that are no jobs; the log has their offsets."""


def moved(positions: Iterable[Position], ends: Mapping[int, int]) -> tuple[Position, ...]:
    """Return the positions after everything below these offsets was processed."""
    return tuple(
        position._replace(next=max(position.next, ends.get(position.partition, 0)))
        for position in positions
    )
