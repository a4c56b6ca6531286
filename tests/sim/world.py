"""One run: a broker, its clients and what goes wrong, from a seed to a verdict.

chaos      everybody works while faults happen
mended     faults end; within bounds the broker serves (V1), every consumer receives
           something new (V2), and what is left is worked off (V3)
verdict    all that was promised is there, and a restart changes nothing (L1, S3, S8)
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import zlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

from sharegroup.ids import SharePartitionKey, TopicId
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.records import DecodedRecord, decode_records, encode_batch
from tests.sim.board import Board
from tests.sim.cast import SESSION_TIMEOUT_S, Cast, settings_of
from tests.sim.chaos import Chaos
from tests.sim.check_letters import letter_of
from tests.sim.checker import Checker
from tests.sim.client import Client, NoAnswer
from tests.sim.clock import WALL_START_MS
from tests.sim.loop import Process, SimLoop
from tests.sim.machine import Machine
from tests.sim.messages import (
    Partition,
    make_describe_offsets,
    make_fetch,
    make_list_offsets,
    make_metadata,
    make_produce,
)
from tests.sim.network import Network
from tests.sim.pipelines import TIMEOUT
from tests.sim.spark_queries import SPARK_GROUP
from tests.sim.swarm import Plan
from tests.sim.wiretap import Wiretap

SERVICE_BACK_S = 5.0
"""V1: the broker serves again this long after it was started."""
FRESH_RECORD_S = SESSION_TIMEOUT_S + 10.0
"""V2: every surviving consumer has received something new by then."""
DRAINED_S = 60.0
"""V3: nothing is left by then."""

EARLIEST = -2
"""The timestamp that asks for a log's first offset."""

OFFSET_OUT_OF_RANGE = 1
TRIES_MAX = 3

Offsets = dict[tuple[str, str, int], tuple[int, int]]
"""Start offset and lag by group, topic and partition."""


class Broken(AssertionError):
    """A promise did not hold; the text names it, and the seed."""


class World:
    """See the module's text."""

    def __init__(self, plan: Plan, *, trace: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.loop = SimLoop()
        self.digest = 0
        """Of every byte on the wire and its time: equal runs have equal ones."""
        self._trace = trace
        self._tap = Wiretap(lambda: self.loop.now_us, self.saw)
        self.network = Network(self.loop, random.Random(f"network {plan.seed}"), self._tap)
        self.loop.network = self.network
        self.machine = Machine(
            self.loop, self.network, self._tap, seed=plan.seed, settings=settings_of(plan)
        )
        self.checker = Checker(plan, incarnation=self._incarnation, soon=self.loop.call_soon)
        self._tap.listener = self.checker
        self.board = Board(
            names=tuple(f"topic-{number}" for number in range(plan.topics)),
            groups=(
                *(f"group-{number}" for number in range(plan.groups)),
                *([SPARK_GROUP] if plan.spark_query else []),
            ),
        )
        self._processes: list[Process] = []
        self._clients: list[asyncio.Task[Any]] = []
        self._cast = Cast(plan, self.board)

    @property
    def requests(self) -> int:
        """How many the broker has received."""
        return self._tap.requests

    def saw(self, connection: int, direction: str, frame: memoryview, meaning: object) -> None:
        """A frame passed by."""
        moment = b"%d %d" % (self.loop.now_us, connection)
        self.digest = zlib.crc32(frame, zlib.crc32(moment, self.digest))
        if self._trace is not None:
            self.note(f"c{connection} {direction} {meaning}")

    def note(self, text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self.loop.time():11.6f} {text}")

    def run(self) -> None:
        """The whole run; Broken says what did not hold."""
        own = Process("world")
        try:
            self.loop.run_until_complete(self.loop.start(own, self._run()))
        finally:
            self.loop.bury([*self._processes, *self.machine.lives, own])
            self.loop.close()
            self.network.close()

    async def _run(self) -> None:
        assert await self.machine.start(), "the broker does not start on an empty disk"
        self._cast.add_all(self.machine, self.loop, self.checker)
        if self.plan.spark_query:
            self._cast.add_spark_query(self.network, self.loop, self.checker, self._processes)
        for name, life in self._cast.lives.items():
            self._start(name, life)
        chaos = Chaos(self.plan, self.machine, self.network, self.note)
        chaos.problems = self.checker.problems
        await self._go_wrong(chaos)
        await chaos.mend()
        self.board.is_settling = True
        mended_us = self.loop.now_us
        await self._until("V1: no service", SERVICE_BACK_S, self._serves)
        await self._until("V2: nothing new", FRESH_RECORD_S, self._all_received, since_us=mended_us)
        self.board.is_quiet = True
        await self._until("V3: not drained", DRAINED_S, self._is_drained)
        await self._verdict()

    def _start(self, name: str, coroutine: Any) -> None:
        process = Process(name)
        self._processes.append(process)
        self._clients.append(self.loop.start(process, coroutine))

    # Waiting

    async def _go_wrong(self, chaos: Chaos) -> None:
        """Let faults happen for some time, or until something is wrong already."""
        task = asyncio.create_task(chaos.run(), name="chaos")
        end = self.loop.time() + self.plan.chaos_s
        while not task.done():
            await asyncio.sleep(0.25)
            self._check()
            chaos.is_over = self.loop.time() >= end
        task.result()

    async def _until(
        self, otherwise: str, seconds: float, holds: Callable[[], Any], since_us: int | None = None
    ) -> None:
        began = self.loop.time() if since_us is None else since_us / 1e6
        while not await holds():
            if self.loop.time() > began + seconds:
                raise Broken(f"{otherwise} for {seconds} s: {await self._state()}")
            await asyncio.sleep(0.25)
            self._check()

    def _check(self) -> None:
        if self.checker.problems:
            raise Broken("; ".join(self.checker.problems[:3]))
        if self.loop.failures:
            raise Broken("an exception that nobody caught") from self.loop.failures[0]
        for client in self._clients:
            if client.done():
                raise Broken(f"{client.get_name()} has ended") from client.exception()
        running = self.machine.running
        if running is not None and not self.machine.process.is_paused:
            for live in running.parts.share_partitions:
                live.state.check()

    async def _state(self) -> str:
        waiting = [consumer.name for consumer in self._cast.consumers if not consumer.fresh]
        return f"{waiting} {await self._offsets()}"

    # What must come true

    async def _serves(self) -> bool:
        """A record can be written, and groups can be asked about (V1)."""
        client = Client("probe", timeout_s=1)
        try:
            answer = await client.ask(make_metadata(*self.board.names))
            topics = [topic for topic in answer.topics if int(topic.error_code) == 0]
            if not topics:
                return False
            value = b"probe/%d" % self.loop.now_us
            batch = bytes(encode_batch([(None, value, WALL_START_MS, ())]))
            partition = Partition(topics[0].topic_id, 0)
            produced = await client.ask(make_produce(partition, batch, acks=-1))
            return int(produced.responses[0].partition_responses[0].error_code) == 0
        except NoAnswer:
            return False
        finally:
            client.close()

    async def _all_received(self) -> bool:
        return all(member.fresh for member in self._cast.consumers)

    def _shares_all_partitions(self) -> bool:
        """Each partition has one member of the group of KIP-848, if it has members."""
        members = self._cast.modern_members
        owned = sorted(partition for member in members for partition in member.owned)
        return not members or owned == sorted(self.board.partitions())

    async def _is_drained(self) -> bool:
        offsets = await self._offsets()
        if not offsets or any(lag for _, lag in offsets.values()):
            return False
        if not self._shares_all_partitions():
            return False
        pipelines = self._cast.pipelines
        if pipelines is None:
            return True
        client = Client("observer")
        try:
            return await pipelines.is_drained(client)
        except NoAnswer:
            return False
        finally:
            client.close()

    async def _offsets(self) -> Offsets:
        client = Client("describer")
        topics = {topic.name: topic.partition_count for topic in self.board.topics.values()}
        found: Offsets = {}
        for group in self.board.groups:
            answer = await self._answer(client, make_describe_offsets(group, topics))
            for topic in answer.groups[0].topics:
                for partition in topic.partitions:
                    where = (group, str(topic.topic_name), partition.partition_index)
                    found[where] = (partition.start_offset, partition.lag)
        client.close()
        return found

    async def _answer(self, client: Client, request: Any) -> Any:
        """What a healthy broker must answer, and be it late."""
        for _ in range(TRIES_MAX):
            with contextlib.suppress(NoAnswer):
                return await client.ask(request)
        raise Broken(f"V1: no answer to {request}")

    # The verdict

    async def _verdict(self) -> None:
        await self._check_logs()
        if "dead_letters" in self.plan.jobs:
            await self._check_letters()
        for process in self._processes:
            self.loop.end(process)
            self.network.process_ended(process, silently=False)
        await self._check_pipelines()
        before = await self._offsets()
        await self.machine.stop()
        assert await self.machine.start(), "the broker does not start after it was stopped in order"
        after = await self._offsets()
        if before != after:
            raise Broken(f"S8: a restart made {after} of {before}")
        await self._check_pipelines()
        await self._check_logs()
        if self.checker.problems:
            raise Broken("; ".join(self.checker.problems[:3]))

    async def _check_pipelines(self) -> None:
        """E1; a transaction that a worker left open times out first."""
        pipelines = self._cast.pipelines
        if pipelines is None:
            await asyncio.sleep(1)
            return
        await asyncio.sleep(2 * TIMEOUT.total_seconds())
        client = Client("auditor")
        self.checker.problems += await pipelines.check(client)
        client.close()

    async def _check_logs(self) -> None:
        for topic in self.board.topics.values():
            for index in range(topic.partition_count):
                partition = Partition(topic.topic_id, index)
                start, records = await self._read(topic.name, partition)
                values = {record.offset: bytes(record.value or b"") for record in records}
                self.checker.logs.complete(partition, values, start)

    async def _check_letters(self) -> None:
        """S10: what failed for good has its letter, and nothing else has."""
        client = Client("postman")
        for group in self.board.groups:
            name = f"dlq.{group}"
            answer = await self._answer(client, make_metadata(name))
            found = answer.topics[0]
            letters = []
            for index in range(len(found.partitions)):
                _, records = await self._read(name, Partition(found.topic_id, index))
                letters += [letter_of(record) for record in records]
            self.checker.letters(group, letters, self._topic_ids())
        client.close()

    def _topic_ids(self) -> dict[str, UUID]:
        return {topic.name: topic.topic_id for topic in self.board.topics.values()}

    async def _read(self, name: str, partition: Partition) -> tuple[int, list[DecodedRecord]]:
        """Where a log begins, and all that is in it."""
        client = Client("auditor")
        for _ in range(TRIES_MAX):
            listed = await self._answer(client, make_list_offsets(name, partition.index, EARLIEST))
            start = listed.topics[0].partitions[0].offset
            records = await self._read_from(client, partition, start)
            if records is not None:
                client.close()
                return start, records
        raise Broken(f"L1: {partition} cannot be read from where it is said to begin, at {start}")

    async def _read_from(
        self, client: Client, partition: Partition, offset: int
    ) -> list[DecodedRecord] | None:
        """All from there on; None: retention has taken some of it meanwhile."""
        end, records = offset + 1, list[DecodedRecord]()
        while offset < end:
            answer = await self._answer(client, make_fetch(partition, offset))
            read = answer.responses[0].partitions[0]
            if int(read.error_code) == OFFSET_OUT_OF_RANGE:
                return None
            end = read.high_watermark
            data = read.records or b""
            records += [record for record in decode_records(data) if record.offset >= offset]
            ends = [header.end_offset for _, header in scan(data)]
            if not ends:
                break
            offset = ends[-1]  # What ends the log may be no record but a marker.
        return records

    def _incarnation(self, group: str, partition: Partition) -> object:
        """What holds the locks of a share partition: they end with it."""
        running = self.machine.running
        if running is None:
            return None
        key = SharePartitionKey(group, TopicId(partition.topic_id), partition.index)  # type: ignore[arg-type]
        return running.parts.share_partitions.loaded(key)
