"""Fetches that wait for min_bytes: they compare sizes, and read records once, for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import request as fetch

from sharegroup.ids import TopicName
from sharegroup.storage.disk.files import RealFiles
from tests.attacks.batches import honest_batch
from tests.faults.in_process import Broker

INT_MAX = 2**31 - 1
HEADER_BYTES = 61


class CountingFiles(RealFiles):
    """Counts the bytes that are read, batch headers aside."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def read(self, fd: int, size: int, position: int) -> bytes:
        found = super().read(fd, size, position)
        self.read_bytes += len(found) if len(found) > HEADER_BYTES else 0
        return found


class Scene:
    """A broker with the topic ``t`` of four partitions."""

    def __init__(self, broker: Broker, files: CountingFiles) -> None:
        self.broker = broker
        self.files = files

    async def append(self, partition: int, size: int) -> int:
        """Append one record; returns the bytes of its batch."""
        batch = bytearray(honest_batch(1, bytes(size)))
        log = self.broker.running.parts.topics.named(TopicName("t"), partition)[1]
        log.append(batch, now_ms=1)
        await turns()
        return len(batch)

    def fetch(self, *partitions: int, min_bytes: int, **limits: int) -> asyncio.Task[Any]:
        wanted = tuple(
            fetch.FetchPartition(
                partition=partition,
                fetch_offset=0,
                partition_max_bytes=limits.get("partition_max_bytes", INT_MAX),
            )
            for partition in partitions
        )
        request = fetch.FetchRequest(
            replica_id=-1,
            max_wait=timedelta(seconds=10),
            min_bytes=min_bytes,
            max_bytes=limits.get("max_bytes", INT_MAX),
            session_epoch=-1,
            topics=(fetch.FetchTopic(topic="t", partitions=wanted),),
            forgotten_topics_data=(),
        )
        return asyncio.create_task(self.broker.ask(request))


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def run(scenario: Callable[[Scene], Awaitable[None]], folder: Path, **settings: str) -> None:
    async def main() -> None:
        files = CountingFiles()
        broker = await Broker.start(files, str(folder), sharegroup_durability="os", **settings)
        try:
            assert await broker.create_topic("t", 4) == 0
            await scenario(Scene(broker, files))
        finally:
            await broker.running.stop()

    asyncio.run(main())


def records(response: Any) -> int:
    """Bytes of records in a response."""
    return sum(len(p.records or b"") for t in response.responses for p in t.partitions)


def test_waiting_fetch_reads_records_only_when_min_bytes_are_available(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        total = await scene.append(0, 1_000)
        before = scene.files.read_bytes
        answers = [scene.fetch(0, 1, 2, min_bytes=5_000) for _ in range(20)]
        await turns()
        for partition in (0, 1, 2):
            total += await scene.append(partition, 1_000)
        assert scene.files.read_bytes == before
        assert not any(answer.done() for answer in answers)
        total += await scene.append(1, 1_000)
        await turns()
        assert [records(answer.result()) for answer in answers] == [total] * 20
        assert scene.files.read_bytes == before + 20 * total

    run(scenario, tmp_path)


def test_fetch_does_not_wait_for_more_than_its_maximum_bytes(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        size = await scene.append(0, 1_000)
        by_request = scene.fetch(0, min_bytes=INT_MAX, max_bytes=500)
        by_partition = scene.fetch(0, min_bytes=INT_MAX, partition_max_bytes=500)
        await turns()
        assert records(by_request.result()) == records(by_partition.result()) == size
        by_broker = scene.fetch(0, 1, min_bytes=INT_MAX)
        await turns()
        assert not by_broker.done()
        await scene.append(1, 2_000)
        await turns()
        assert by_broker.done()

    run(scenario, tmp_path, fetch_max_bytes="2048")


def test_fetch_from_an_older_segment_does_not_wait(tmp_path: Path) -> None:
    """A response never spans segments, so waiting would bring no more records."""

    async def scenario(scene: Scene) -> None:
        size = await scene.append(0, 1_000)
        scene.broker.running.parts.topics.named(TopicName("t"), 0)[1].roll()
        await scene.append(0, 1_000)
        answer = scene.fetch(0, min_bytes=100_000)
        await turns()
        assert records(answer.result()) == size

    run(scenario, tmp_path)


def test_fetch_is_answered_at_its_deadline_with_the_available_records(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        size = await scene.append(2, 1_000)
        answer = scene.fetch(0, 1, 2, min_bytes=100_000)
        await turns()
        assert not answer.done()
        scene.broker.clock.advance(10)
        await turns()
        assert records(answer.result()) == size

    run(scenario, tmp_path)


def test_an_error_is_answered_at_once(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.append(0, 1_000)
        unknown = scene.fetch(0, 9, min_bytes=100_000)
        await turns()
        errors = {p.partition_index: p.error_code for p in unknown.result().responses[0].partitions}
        assert errors == {0: ErrorCode.none, 9: ErrorCode.unknown_topic_or_partition}

    run(scenario, tmp_path)
