"""Spark queries over a share group: driver, batches, checkpoint and sink, killed at every step.

The query's reader is the real one, `ShareStream` over `ShareRanges`, on the simulated network.
Spark is played by hand, in the order of its calls::

    start: batch logged, not committed? run it again
      |
      v
    advance --> acquire ahead --> log the offset --> run the batch --> sink --> commit --.
      ^          ^                  ^                 ^                 ^               |
      '----------+------------------+-----------------+-----------------+---------------'
                 kill -9 of the driver at each of these, and at any other time

What the offset log says is all that a new driver knows.  A batch takes up to some lock durations,
so locks run out while it runs and while the next one, acquired ahead, waits for it.

Q1  nothing is twice in a sink that is idempotent by batch id, unless the query released it
Q2  nothing is accepted or rejected before its batch is in the sink
Q3  a row's delivery count is that of its last delivery
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.ranges.share_ranges import ShareRanges
from sharegroup.client.share.session.acknowledgements import TYPE_MASK, released_after
from sharegroup.client.share.session.acquired_records import RECORDS_MAX, acquired_offsets
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.client.share.session.share_session import RunsByPartition
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.carry import DecidedOffsets
from sharegroup.spark.offsets import StreamOffset, Subscription, parse
from sharegroup.spark.share_stream import ShareStream
from tests.sim.board import Board
from tests.sim.checker import Checker
from tests.sim.loop import Process, SimLoop
from tests.sim.messages import Partition
from tests.sim.network import Network
from tests.sim.real_clients import BOOTSTRAP, REQUEST_TIMEOUT_MS

STEPS = ("acquired", "logged", "running", "written", "committed", "any")
"""Where drivers are killed; the names say what is done."""
KILL = 0.06
"""The probability at each step."""
GOODBYE_S = 5.0
LIFE_S = (0.5, 12.0)
"""How long a driver lives that is killed at any time."""

SPARK_GROUP = "spark"
"""The query is its only member."""

Row = tuple[TopicIdPartition, int]
"""A record: its share partition and its offset."""


@dataclass
class Checkpoint:
    """What outlives the driver: Spark's two logs, the decisions of `foreachBatch` and the sink."""

    offsets: list[str] = field(default_factory=list)
    """The offset log; a batch's id is the index of its offset."""
    committed: int = 0
    """The number of committed batches."""
    decided: dict[int, DecidedOffsets] = field(default_factory=dict)
    """By ``seq`` of the batch."""
    sink: dict[int, tuple[Row, ...]] = field(default_factory=dict)
    """The rows by batch id: a batch that runs again replaces its rows."""

    def outcomes(self, batch: StreamOffset) -> DecidedOffsets:
        return self.decided.get(batch.seq, {})

    def announce(self, query: str) -> None:
        """Do nothing: the decisions are never lost here."""


@dataclass
class SparkQuery:
    """A query and the supervisor that starts it again; see the module's text."""

    name: str
    group: str
    board: Board
    checker: Checker
    chance: random.Random
    loop: SimLoop
    network: Network
    processes: list[Process]
    """All processes of the run, for their end."""
    lock_ms: int
    delay_ms_max: int
    fresh: int = 0
    """Records received since the faults ended."""
    kills: Counter[str] = field(default_factory=Counter)
    ahead: int = 0
    """The number of batches that were acquired ahead."""
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    shown: dict[Row, int] = field(default_factory=dict)
    """The batch that has a record, without records that the query released."""

    async def run(self) -> None:
        while True:
            driver = Process(f"{self.name}-driver-{len(self.processes)}")
            self.processes.append(driver)
            killed = self.loop.create_future()
            drive = self.loop.start(driver, _Driver(self, driver, killed).run())
            is_doomed = not self.board.is_settling and self.chance.random() < 0.3
            limit = self.chance.uniform(*LIFE_S) if is_doomed else None
            await asyncio.wait([drive, killed], timeout=limit, return_when="FIRST_COMPLETED")
            if drive.done():
                drive.result()
            elif not killed.done():
                self.kill(driver, "any")
            await asyncio.sleep(self.chance.uniform(0.1, 1))

    def kill(self, driver: Process, step: str) -> None:
        """Do what ``kill -9`` does, or what the end of its machine does: no broker hears of it."""
        self.kills[step] += 1
        self.loop.end(driver)
        is_silent = not self.board.is_settling and self.chance.random() < 0.2
        self.network.process_ended(driver, silently=is_silent)

    def problem(self, text: str) -> None:
        self.checker.problems.append(text)

    def is_untouched(self, key: TopicIdPartition) -> bool:
        """Whether nobody has reset the group's offsets, after which records come again."""
        view = self.checker.shares.view(self.group, _partition(key))
        return not (view.is_unsure or view.was_reset)


class _Driver:
    """One life of the driver, from its start to its end."""

    def __init__(self, query: SparkQuery, process: Process, killed: asyncio.Future[None]) -> None:
        self._query = query
        self._checkpoint = query.checkpoint
        self._process = process
        self._killed = killed
        self._subscription = Subscription(query.group, query.board.names)
        self._is_available_now = query.chance.random() < 0.2

    async def run(self) -> None:
        """Run the query until it fails, or ends because its trigger is availableNow."""
        start = self._last_offset(len(self._checkpoint.offsets))
        ranges = WatchedRanges(self._query, start.query or self._query.name)
        ranges.start()
        stream = ShareStream(
            ranges, self._checkpoint, query=self._query.name, load=self._process.name
        )
        try:
            if self._checkpoint.committed < len(self._checkpoint.offsets):
                await self._run_batch(start)
            if self._is_available_now:
                await stream.stop_at_the_end()
            await self._run_batches(stream, start)
        except KafkaError:
            pass  # The query has failed; the supervisor starts it again.
        try:
            async with asyncio.timeout(GOODBYE_S):
                await ranges.close()
        except (KafkaError, TimeoutError):
            pass

    def _last_offset(self, count: int) -> StreamOffset:
        if not count:
            return StreamOffset(self._subscription)
        return parse(json.loads(self._checkpoint.offsets[count - 1]), self._subscription)

    async def _run_batches(self, stream: ShareStream, start: StreamOffset) -> None:
        chance = self._query.chance
        records_max = chance.choice((3, 10, 50, RECORDS_MAX))
        while True:
            try:
                end = await stream.advance(start, records_max=records_max)
            except KafkaError as error:
                if self._is_available_now or not error.retriable:
                    raise
                end = start
            if end is start:
                if self._is_available_now:
                    return
                await asyncio.sleep(0)
                continue
            logged = json.dumps(end.to_json())
            self._check_counts(parse(json.loads(logged), self._subscription))
            await stream.acquire_ahead(end, records_max)
            await self._step("acquired")
            self._checkpoint.offsets.append(logged)
            # As after a restart, the batch is what the log says.
            start = self._last_offset(len(self._checkpoint.offsets))
            await self._step("logged")
            await self._run_batch(start)

    async def _run_batch(self, batch: StreamOffset) -> None:
        """Run the last batch of the offset log, in one attempt or more, and commit it."""
        query, checkpoint = self._query, self._checkpoint
        batch_id = len(checkpoint.offsets) - 1
        attempts = 1 if query.board.is_settling else query.chance.choice((1, 1, 2))
        for _ in range(attempts):
            await asyncio.sleep(self._batch_seconds())  # An attempt that fails leaves nothing.
        checkpoint.decided.setdefault(batch.seq, self._decide(batch))
        await self._step("running")
        checkpoint.sink[batch_id] = tuple(_rows(batch))
        self._note_shown(batch_id, batch)
        await self._step("written")
        checkpoint.committed = len(checkpoint.offsets)
        if query.board.is_settling:
            query.fresh += len(checkpoint.sink[batch_id])
        await self._step("committed")

    def _batch_seconds(self) -> float:
        locks = 0.1 if self._query.board.is_settling else self._query.chance.choice((0, 0.3, 2))
        return self._query.chance.uniform(0, locks * self._query.lock_ms / 1_000)

    def _decide(self, batch: StreamOffset) -> DecidedOffsets:
        """Reject some records, release others, also with a delay; the rest is accepted."""
        decided: dict[TopicIdPartition, Mapping[int, OffsetSet]] = {}
        if self._query.board.is_settling or self._query.chance.random() < 0.5:
            return decided
        for key, runs in sorted(batch.acquired.items()):
            chosen: dict[int, list[tuple[int, int]]] = {
                AcknowledgeType.REJECT: [],
                AcknowledgeType.RELEASE: [],
                released_after(0): [],
                released_after(min(900, self._query.delay_ms_max)): [],
            }
            for first, end in acquired_offsets(runs):
                for offset in range(first, end):
                    if self._query.chance.random() < 0.2:
                        kind = self._query.chance.choice((*chosen,))
                        chosen[kind].append((offset, offset + 1))
            decided[key] = {kind: OffsetSet.of(some) for kind, some in chosen.items() if some}
        return decided

    def _check_counts(self, batch: StreamOffset) -> None:
        for key, runs in batch.acquired.items():
            view = self._query.checker.shares.view(self._query.group, _partition(key))
            for run in runs:
                for offset in range(run.first_offset, run.end_offset):
                    last = view.last.get(offset, (None, 0))[1]
                    if run.delivery_count != last and self._query.is_untouched(key):
                        named = f"{self._query.group} {key.partition}-{offset}"
                        self._query.problem(
                            f"Q3: {named} has delivery count {run.delivery_count}, not {last}"
                        )

    def _note_shown(self, batch_id: int, batch: StreamOffset) -> None:
        query, decided = self._query, self._checkpoint.decided[batch.seq]
        for key, offset in _rows(batch):
            earlier = query.shown.setdefault((key, offset), batch_id)
            if earlier != batch_id and query.is_untouched(key):
                query.problem(
                    f"Q1: {query.group} {key.partition}-{offset} is in the batches {earlier} and "
                    f"{batch_id}"
                )
        released = (
            (key, offset)
            for key, kinds in decided.items()
            for kind, offsets in kinds.items()
            if kind & TYPE_MASK == AcknowledgeType.RELEASE
            for first, end in offsets
            for offset in range(first, end)
        )
        for row in released:
            query.shown.pop(row, None)

    async def _step(self, step: str) -> None:
        """Die here, or go on."""
        if self._query.board.is_settling or self._query.chance.random() >= KILL:
            return
        self._killed.set_result(None)
        self._query.kill(self._process, step)
        await asyncio.Event().wait()  # Nothing of this process runs any more.


class WatchedRanges(ShareRanges):
    """A member whose acknowledgements are checked (Q2)."""

    def __init__(self, query: SparkQuery, member_id: str) -> None:
        super().__init__(
            ClientConfig(
                bootstrap_servers=BOOTSTRAP,
                client_id=query.name,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                connect_timeout_ms=REQUEST_TIMEOUT_MS,
                metadata_max_age_ms=1_000,
            ),
            group_id=query.group,
            topics=query.board.names,
            member_id=member_id,
            without_records=True,
        )
        self._query = query

    def acquire_ahead(self, *, records_max: int) -> None:
        self._query.ahead += 1
        super().acquire_ahead(records_max=records_max)

    async def acknowledge(self, runs: RunsByPartition) -> dict[TopicIdPartition, OffsetSet]:
        checkpoint = self._query.checkpoint
        committed = {
            row for batch_id in range(checkpoint.committed) for row in checkpoint.sink[batch_id]
        }
        for key, acks in runs.items():
            unseen = [
                offset
                for ack in acks
                if ack.ack_type & TYPE_MASK != AcknowledgeType.RELEASE
                for offset in range(ack.first, ack.end)
                if (key, offset) not in committed
            ]
            if unseen:
                named = f"{self._query.group} {key.partition}-{unseen}"
                self._query.problem(f"Q2: {named} is settled, and in no committed batch")
        return await super().acknowledge(runs)


def _rows(batch: StreamOffset) -> Iterator[Row]:
    for key, runs in batch.acquired.items():
        for run in runs:
            for offset in range(run.first_offset, run.end_offset):
                yield key, offset


def _partition(key: TopicIdPartition) -> Partition:
    return Partition(key.topic_id, key.partition)
