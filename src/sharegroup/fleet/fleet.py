"""Reads the worker processes of an application, and gives them commands.

read       the last heartbeat of each process; one that was not heard for 30 s is lost
command    written once for all of its targets; it expires when the wait for answers ends
           done        the process is quiet, runs again, or has stopped
           expired     it read the command too late, and did nothing
           under-way   it has taken the command, and is not there yet
           stopped     it stopped meanwhile
           unheard     it did not answer; it does not carry the command out any more
           lost        it was not heard before the command either
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from secrets import token_hex
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

from sharegroup.client.admin.topics import describe_topics
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.followed_partition import FollowedPartition
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.produce.producer import Producer
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import (
    ClientConfig,
    ProducerOptions,
    ReadingConfig,
    config_from,
    options_of,
)
from sharegroup.errors import InvalidConfig, UnknownTopicOrPartition
from sharegroup.fleet.commands import (
    EVERYBODY,
    LIFE_SECONDS_MAX,
    Intent,
    Target,
    WorkerCommand,
    encoded,
)
from sharegroup.fleet.fleet_topics import PARTITION, commands_topic, workers_topic
from sharegroup.fleet.heartbeats import (
    LOST_SECONDS,
    Answer,
    Departed,
    Heartbeat,
    Identity,
    parsed,
)
from sharegroup.wire.batches.records import DecodedRecord

LOOK_SECONDS = 0.3
GRACE_MS = 2_000
"""How long after the expiry an answer may arrive of a process that read the command just before."""
WORKERS_MAX = 10_000
"""The number of processes of one application that are remembered; others are left out."""
FAILED = "failed"
PHASES: Mapping[Intent, str] = {Intent.QUIET: "quiet", Intent.RESUME: "running"}
"""The phase of a process that has carried a command out; after a stop it has none."""


class Outcome(StrEnum):
    """What became of a command at one process."""

    DONE = "done"
    EXPIRED = "expired"
    UNDER_WAY = "under-way"
    STOPPED = "stopped"
    UNHEARD = "unheard"
    LOST = "lost"


class SeenWorker(NamedTuple):
    """A process, as it was last heard."""

    beat: Heartbeat
    heard_ms: int
    """The broker's time of the heartbeat."""

    @property
    def identity(self) -> Identity:
        """What stays the same while the process runs."""
        return self.beat.identity

    def silent_seconds(self, now_ms: int) -> float:
        """How long it was not heard."""
        return max(now_ms - self.heard_ms, 0) / 1000

    def is_lost(self, now_ms: int) -> bool:
        """Whether it was killed, is frozen, or is cut off; one that has failed said so."""
        return self.beat.phase != FAILED and self.silent_seconds(now_ms) > LOST_SECONDS


class Steered(NamedTuple):
    """The outcome of a command at one process, with its last phase."""

    worker: SeenWorker
    outcome: Outcome


class Heard(NamedTuple):
    """A record of the workers' topic, and the broker's time of it."""

    said: Heartbeat | Departed
    at_ms: int


class Workers:
    """The processes that announced themselves, from their records in order."""

    __slots__ = ("_limit", "_seen", "departed", "left_out")

    def __init__(self, limit: int = WORKERS_MAX) -> None:
        self._limit = limit
        self._seen: dict[str, SeenWorker] = {}
        self.departed: set[str] = set()
        """The ids of those that stopped since the first read."""
        self.left_out = 0
        """Heartbeats of processes above the limit."""

    def take(self, said: Heartbeat | Departed, at_ms: int) -> None:
        """Apply the next record."""
        if isinstance(said, Departed):
            if self._seen.pop(said.worker_id, None) is not None:
                self.departed.add(said.worker_id)
        elif said.identity.worker_id in self._seen or len(self._seen) < self._limit:
            self._seen[said.identity.worker_id] = SeenWorker(said, at_ms)
        else:
            self.left_out += 1

    def get(self, worker_id: str) -> SeenWorker | None:
        """Return a process; None if it has stopped."""
        return self._seen.get(worker_id)

    def listed(self) -> list[SeenWorker]:
        """Return the processes by host, process id and start."""
        return sorted(
            self._seen.values(),
            key=lambda seen: (seen.identity.host, seen.identity.pid, seen.identity.since_ms),
        )


def outcome_of(
    command: WorkerCommand, before: SeenWorker, workers: Workers, *, now_ms: int
) -> Outcome | None:
    """Return what became of a command at a process; None while it may still become more."""
    worker_id = before.identity.worker_id
    seen = workers.get(worker_id)
    if seen is None:
        return Outcome.DONE if command.intent is Intent.STOP else Outcome.STOPPED
    answer = dict(seen.beat.answers).get(command.command_id)
    if answer is Answer.EXPIRED:
        return Outcome.EXPIRED
    if answer is Answer.TAKEN and seen.beat.phase == PHASES.get(command.intent):
        return Outcome.DONE
    if now_ms < command.expires_ms + GRACE_MS:
        # A lost process that wakes up in time carries the command out, but is not waited for.
        return Outcome.LOST if answer is None and before.is_lost(command.asked_ms) else None
    if answer is None:
        return Outcome.LOST if before.is_lost(command.asked_ms) else Outcome.UNHEARD
    return Outcome.UNDER_WAY


class Fleet:
    """The worker processes of an application: reads them, and gives them commands.

    Example::

        async with Fleet("orders-service", bootstrap_servers=bootstrap_servers) as fleet:
            for worker in (await fleet.workers()).listed():
                print(worker.identity.worker_id, worker.beat.phase)
            outcomes = await fleet.steer(Intent.QUIET, by="anna", wait_seconds=30)
    """

    def __init__(self, app: str, **options: Unpack[ProducerOptions]) -> None:
        self.app = app
        self._options: dict[str, Any] = dict(options)
        self._cluster = Cluster(config_from(ReadingConfig, options_of(ClientConfig, options)))
        self._beats = FollowedPartition(
            self._cluster, TopicPartition(workers_topic(app), PARTITION), heard
        )
        self._workers = Workers()
        self._is_checked = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cluster.close()

    async def workers(self) -> Workers:
        """Return the processes up to the last heartbeat; raises InvalidConfig without a topic."""
        if not self._is_checked:
            await self._check()
            self._is_checked = True
        for said, at_ms in await self._beats.read():
            self._workers.take(said, at_ms)
        return self._workers

    async def steer(
        self, intent: Intent, target: Target = EVERYBODY, *, by: str, wait_seconds: float
    ) -> list[Steered]:
        """Give a command, and wait for what becomes of it at each process it is for.

        The command expires when the wait ends, so a process that wakes up later does not carry it
        out.  Nothing is written if it is for no process.
        """
        if not 0 < wait_seconds <= LIFE_SECONDS_MAX:
            raise InvalidConfig(
                f"a wait of {wait_seconds:g} s; expected more than 0 s, up to {LIFE_SECONDS_MAX:g}"
            )
        workers = await self.workers()
        targets = [seen for seen in workers.listed() if target.includes(seen.identity)]
        if not targets:
            return []
        asked_ms = _now_ms()
        command = WorkerCommand(
            command_id=token_hex(8), intent=intent, target=target, by=by, asked_ms=asked_ms,
            expires_ms=asked_ms + max(int(wait_seconds * 1000), 1),
        )  # fmt: skip
        await self._write(command)
        outcomes: dict[str, Outcome] = {}
        while True:
            await self.workers()
            now_ms = _now_ms()
            for before in targets:
                outcome = outcome_of(command, before, workers, now_ms=now_ms)
                if outcome is not None:
                    outcomes[before.identity.worker_id] = outcome
            if len(outcomes) == len(targets):
                return [
                    Steered(workers.get(worker_id) or before, outcomes[worker_id])
                    for before in targets
                    for worker_id in (before.identity.worker_id,)
                ]
            await asyncio.sleep(LOOK_SECONDS)

    async def _check(self) -> None:
        names = [workers_topic(self.app), commands_topic(self.app)]
        described = await describe_topics(self._cluster, names)
        for name in names:
            found = described[name]
            if isinstance(found, UnknownTopicOrPartition):
                raise InvalidConfig(
                    f"application {self.app!r} has no topic {name!r}, so its processes do not "
                    "announce themselves: declare App(..., announce=True), and start or apply the "
                    "worker"
                )
            if not isinstance(found, TopicDescription):
                raise found

    async def _write(self, command: WorkerCommand) -> None:
        key, value = encoded(command)
        async with Producer(**self._options, allow_auto_create_topics=False) as producer:
            await producer.send_and_wait(
                commands_topic(self.app), value, key=key, partition=PARTITION
            )


def heard(record: DecodedRecord) -> Heard:
    """Return what a record says; raises ValueError if it is no heartbeat."""
    return Heard(parsed(record.key, record.value), record.timestamp or 0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def silent_text(workers: Iterable[SeenWorker], now_ms: int) -> str:
    """Name the lost processes of a list, with the time since they were heard."""
    return ", ".join(
        f"{seen.identity.worker_id} ({seen.silent_seconds(now_ms):.0f} s)"
        for seen in workers
        if seen.is_lost(now_ms)
    )
