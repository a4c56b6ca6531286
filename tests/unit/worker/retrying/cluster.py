"""A cluster in a few lines, on virtual time: topics, a group that shares them out, and faults.

Writes take 3 ms and commits 1 ms, so there is always a moment at which something can happen in
between.  What is killed is cut off: its calls never return, as those of a dead process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sharegroup.errors import CoordinatorNotAvailable, KafkaError, NetworkException
from sharegroup.waiting.control_records import ControlRecord, parsed
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.ports import Header
from sharegroup.worker.retrying.postponer import Postponer
from sharegroup.worker.retrying.scheduler import Scheduler
from sharegroup.worker.retrying.tier_log import (
    Committed,
    OwnershipLost,
    TierOwner,
    TierPartition,
    TierRecord,
)
from sharegroup.worker.retrying.tier_mover import LIMITS_DEFAULT, Moving, SchedulerLimits
from sharegroup.worker.retrying.tier_moves import MovedRecord, MovesRefused

START_MS = 1_767_225_600_000
WRITE_SECONDS = 0.003
COMMIT_SECONDS = 0.001
SESSION_SECONDS = 10.0
FETCH_RECORDS = 700
TIERS = Tiers.of((5, 30, 120))


class LoopClock:
    """The event loop's time; ``ahead_ms`` is how wrong its calendar is."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return START_MS + round(self.now() * 1000) + self.ahead_ms

    async def sleep_until(self, when: float) -> None:
        await asyncio.sleep(max(0.0, when - self.now()))


class Lying(NamedTuple):
    """A record of a topic; also a `WrittenRecord`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Cluster:
    """A simulated cluster on virtual time: topics, a consumer group and faults."""

    def __init__(self, *, partitions: int = 1, ahead_ms: int = 0, is_steered: bool = False) -> None:
        self.is_steered = is_steered
        self.clock = LoopClock(ahead_ms)
        self.partitions = partitions
        self.topics: dict[str, list[list[Lying]]] = {}
        self.missing: set[str] = set()
        self.refuses: Callable[[str, bytes | None], KafkaError | None] = lambda topic, value: None
        self.committed: dict[TierPartition, Committed] = {}
        self.commits: list[tuple[TierPartition, Committed]] = []
        self.refused_commits = 0
        """How many commits fail from now on."""
        self.members: list[Member] = []
        self.is_up = asyncio.Event()
        self.is_up.set()
        self.appended = asyncio.Event()
        self._growth = asyncio.Event()
        self.first_offset = 0
        self._sharing = asyncio.Lock()

    def lying(self, topic: str) -> list[Lying]:
        """All records of a topic."""
        return [record for partition in self.topics.get(topic, []) for record in partition]

    def values(self, topic: str = "g.retry") -> list[bytes | None]:
        """Their values."""
        return [record.value for record in self.lying(topic)]

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Iterable[Header],
        partition: int | None = None,
    ) -> Lying:
        logs = self.topics.setdefault(topic, [[] for _ in range(self.partitions)])
        number = sum(key or value or b"") % len(logs) if partition is None else partition
        offset = self.first_offset + len(logs[number])
        lying = Lying(topic, number, offset, self.clock.wall_ms(), key, value, tuple(headers))
        logs[number].append(lying)
        self.appended.set()
        self._growth.set()
        self._growth = asyncio.Event()
        return lying

    def cut(self, topic: str, end: int = 0) -> None:
        """Lose the records of a topic from an offset on; those who read behind it read it anew."""
        for log in self.topics[topic]:
            del log[end:]
        for member in self.members:
            member.go_back(topic, end)

    async def grown(self, is_so: Callable[[], bool], *, seconds: float) -> None:
        """Wait until this is true of what lies in the topics."""
        async with asyncio.timeout(seconds):
            while not is_so():
                await self._growth.wait()

    async def share_out(self) -> None:
        """What a group does when its members change: everybody gives up everything first."""
        async with self._sharing:
            await self._share_out()

    async def _share_out(self) -> None:
        for member in self.members:
            await member.give_up()
        topics = sorted({topic for member in self.members for topic in member.topics})
        every = [
            TierPartition(topic, number)
            for topic in topics
            if topic not in self.missing
            for number in range(self.partitions)
        ]
        for index, member in enumerate(self.members):
            await member.take_over(every[index :: len(self.members)])

    async def down_for(self, seconds: float) -> None:
        """The broker answers nobody for so long."""
        self.is_up.clear()
        await asyncio.sleep(seconds)
        self.is_up.set()


class Sent(NamedTuple):
    """A record on its way."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[Header]
    at: float
    answer: asyncio.Future[Lying]


class Outbox:
    """A process's `ports.Outbox`; what is sent arrives in that order."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.is_cut = False
        self.under_way: list[Sent] = []
        self._task: asyncio.Task[None] | None = None

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Awaitable[Lying]:
        loop = asyncio.get_running_loop()
        sent = Sent(topic, value, key, headers, loop.time(), loop.create_future())
        if not self.is_cut:
            self.under_way.append(sent)
            if self._task is None:
                self._task = loop.create_task(self._write())
        return sent.answer

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self.under_way:
            at = self.under_way[0].at
            await asyncio.sleep(at + WRITE_SECONDS / 2 - loop.time())
            await self._cluster.is_up.wait()
            batch = [write for write in self.under_way if write.at == at]
            lying = [self._append(write) for write in batch]
            await asyncio.sleep(WRITE_SECONDS / 2)
            del self.under_way[: len(batch)]
            for sent, outcome in zip(batch, lying, strict=True):
                if self.is_cut or sent.answer.done():
                    continue
                if isinstance(outcome, KafkaError):
                    sent.answer.set_exception(outcome)
                else:
                    sent.answer.set_result(outcome)
        self._task = None

    def _append(self, sent: Sent) -> Lying | KafkaError:
        error = self._cluster.refuses(sent.topic, sent.value)
        return error or self._cluster.append(sent.topic, sent.value, sent.key, sent.headers)


class Member:
    """A process's `TierLog`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._owner: TierOwner | None = None
        self._positions: dict[TierPartition, int] = {}
        self._paused: set[TierPartition] = set()
        self._announced: tuple[TierPartition, ...] = ()
        self.topics: tuple[str, ...] = ()
        self.is_cut = False
        self.is_running = asyncio.Event()
        """Cleared while the process is frozen, as by SIGSTOP."""
        self.is_running.set()
        self.read_errors: list[KafkaError] = []
        self.starts = 0

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        await self.close()
        self.starts += 1
        await self._cluster.is_up.wait()
        self._owner, self.topics = owner, tuple(topics)
        self._cluster.members.append(self)
        await self._cluster.share_out()

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:
        if self.read_errors:
            raise self.read_errors.pop(0)
        await self._cluster.is_up.wait()
        await self.is_running.wait()
        if not (found := self._read()):
            self._cluster.appended.clear()
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._cluster.appended.wait()
            except TimeoutError:
                pass
            found = self._read()
        return found

    def pause(self, partition: TierPartition) -> None:
        self._paused.add(partition)

    def resume(self, partition: TierPartition) -> None:
        self._paused.discard(partition)
        self._cluster.appended.set()

    def end_offset(self, partition: TierPartition) -> int | None:
        logs = self._cluster.topics.get(partition.topic)
        return self._cluster.first_offset + len(logs[partition.partition]) if logs else None

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        await asyncio.sleep(COMMIT_SECONDS)
        if self.is_cut:
            await asyncio.Event().wait()
        if not self._cluster.is_up.is_set():
            raise NetworkException("the broker is away")
        if self._cluster.refused_commits:
            self._cluster.refused_commits -= 1
            raise CoordinatorNotAvailable("it moves")
        if partition not in self._positions:
            raise OwnershipLost(f"{partition} is somebody else's")
        self._cluster.committed[partition] = committed
        self._cluster.commits.append((partition, committed))

    async def close(self) -> None:
        if self in self._cluster.members:
            self._cluster.members.remove(self)
            self._positions.clear()
            self._announced = ()  # Who leaves by its own will is told nothing.
            await self._cluster.share_out()

    async def give_up(self) -> None:
        if self.is_cut:
            return
        assert self._owner is not None
        await self._owner.revoked(self._announced)
        self.lose()

    async def take_over(self, partitions: Iterable[TierPartition]) -> None:
        assert self._owner is not None
        found = {
            partition: self._cluster.committed.get(partition, Committed(0))
            for partition in partitions
        }
        self._paused.clear()
        self._positions = {partition: committed.offset for partition, committed in found.items()}
        self._announced = tuple(found)
        await self._owner.assigned(found)
        self._cluster.appended.set()

    def go_back(self, topic: str, end: int) -> None:
        """Read from the earliest offset what lies behind the end, as its consumer does."""
        for partition, position in self._positions.items():
            if partition.topic == topic and position > end:
                self._positions[partition] = 0

    def owns(self, partition: TierPartition) -> bool:
        """Whether the group would take an offset of this member."""
        return partition in self._positions and not self.is_cut

    def lose(self) -> None:
        """The group went on without this one, and it does not know."""
        self._positions.clear()

    def _read(self) -> dict[TierPartition, list[TierRecord]]:
        found = {}
        for partition, position in self._positions.items():
            logs = self._cluster.topics.get(partition.topic)
            if logs is None or partition in self._paused:
                continue
            log = logs[partition.partition]
            at = max(position - self._cluster.first_offset, 0)
            if some := log[at : at + FETCH_RECORDS]:
                self._positions[partition] = some[-1].offset + 1
                found[partition] = [
                    TierRecord(
                        record.offset, record.timestamp_ms, record.key, record.value, record.headers
                    )
                    for record in some
                ]
        return found


class Moves:
    """A process's `TierMoves`: all of a move happens at one moment, or nothing of it."""

    def __init__(self, cluster: Cluster, member: Member) -> None:
        self._cluster = cluster
        self._member = member
        self._control_read = 0
        self.is_closed = False

    async def move(
        self, partition: TierPartition, records: Sequence[MovedRecord], committed: Committed
    ) -> Sequence[Lying]:
        await asyncio.sleep(WRITE_SECONDS / 2)
        await self._cluster.is_up.wait()
        if self._member.is_cut:
            await asyncio.Event().wait()
        await self._member.is_running.wait()
        refused = {
            index: error
            for index, record in enumerate(records)
            if (error := self._cluster.refuses(record.topic, record.value)) is not None
        }
        if refused:
            raise MovesRefused(refused)
        if not self._member.owns(partition):
            raise OwnershipLost(f"{partition} is somebody else's")
        written = [
            self._cluster.append(
                record.topic, record.value, record.key, record.headers, record.partition
            )
            for record in records
        ]
        self._cluster.committed[partition] = committed
        self._cluster.commits.append((partition, committed))
        await asyncio.sleep(WRITE_SECONDS / 2)
        if self._member.is_cut:
            await asyncio.Event().wait()
        return written

    async def record_at(self, partition: TierPartition, offset: int) -> TierRecord | None:
        await asyncio.sleep(COMMIT_SECONDS)
        logs = self._cluster.topics.get(partition.topic)
        log = logs[partition.partition] if logs else []
        if not 0 <= offset < len(log):
            return None
        record = log[offset]
        return TierRecord(
            record.offset, record.timestamp_ms, record.key, record.value, record.headers
        )

    async def read_control(self) -> Sequence[ControlRecord]:
        await asyncio.sleep(COMMIT_SECONDS)
        await self._cluster.is_up.wait()
        lying = self._cluster.lying("g.retry.control")[self._control_read :]
        self._control_read += len(lying)
        return [parsed(record.key, record.value) for record in lying]

    async def wait_control(self, wait_seconds: float) -> None:
        await asyncio.sleep(wait_seconds)

    async def close(self) -> None:
        self.is_closed = True


class Process:
    """A worker process, as far as it schedules: `kill` ends it as kill -9 does."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        ahead_ms: int = 0,
        tiers: Tiers = TIERS,
        limits: SchedulerLimits = LIMITS_DEFAULT,
        outbox: type[Outbox] = Outbox,
        holder: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self.cluster = cluster
        self.clock = LoopClock(ahead_ms)
        self.outbox = outbox(cluster)
        self.member = Member(cluster)
        self.postponer = Postponer(self.outbox, self.clock, "g", tiers)
        self.scheduler = Scheduler(
            Moving(
                "g",
                self.clock,
                self.outbox,
                self.member,
                tiers=tiers,
                limits=limits,
                moves=Moves(cluster, self.member) if cluster.is_steered else None,
                holder=holder,
            )
        )
        self.task = asyncio.ensure_future(self.scheduler.run())

    async def later(self, value: bytes, seconds: float, key: bytes | None = None) -> None:
        """Send a record of the topic ``orders`` with a delay, durable when this returns."""
        due_ms = self.clock.wall_ms() + round(seconds * 1000)
        await self.postponer.send_later("orders", value, key=key, due_ms=due_ms)

    async def stop(self) -> None:
        await self.scheduler.stop()
        await self.task

    async def kill(self) -> None:
        """What it wrote is written; its group hears of it after the session timeout."""
        self.cut()
        await asyncio.sleep(SESSION_SECONDS)
        await self.cluster.share_out()

    def cut(self) -> None:
        self.outbox.is_cut = self.member.is_cut = True
        self.member.lose()
        if self.member in self.cluster.members:
            self.cluster.members.remove(self.member)
        self.task.cancel()
