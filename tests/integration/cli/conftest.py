"""The command line against a broker in the same process.

``SHAREGROUP_INTEROP=kafka`` runs the same tests against a real Apache Kafka, but for the few that
make a broker of ours with settings or files of their own.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition as ConfluentPartition

from sharegroup.cli.main import main
from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.testing import run_broker
from tests.support.chosen_broker import KAFKA, KEPT, SHORT_TIMES, chosen, running
from tests.support.limits import HANGING_SECONDS

RECORDS = 4


@dataclass(frozen=True)
class Printed:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> Any:
        """The output as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """The output of a listing, cell by cell."""
        return [line.split() for line in self.out.splitlines()]

    def lines_from(self, source: str) -> list[list[str]]:
        """Of a listing of configs the head, and those that come from there: Kafka lists those
        that the broker was started with, too."""
        return [cells for cells in self.lines if cells[-1] in ("SOURCE", source)]

    def rows_from(self, source: str) -> list[Any]:
        return [row for row in self.rows if row["source"] == source]


Run = Callable[..., Printed]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {**SHORT_TIMES, **KEPT, "num.partitions": "2"}
    if chosen() == KAFKA:
        with running(KAFKA, tmp_path_factory.mktemp("cli"), settings) as kafka:
            set_up(kafka.bootstrap_servers, "first-of-all")
            yield kafka.bootstrap_servers
    else:
        with run_broker(settings) as broker:
            yield broker.bootstrap_servers


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``sharegroup WORDS...`` against the broker."""

    def run_words(words: str, *more: str) -> Printed:
        with pytest.raises(SystemExit) as end:
            main([*words.split(), *more, "--bootstrap", bootstrap])
        printed = capsys.readouterr()
        if chosen() == KAFKA and printed.out.startswith("created topic "):
            asyncio.run(known(bootstrap, printed.out.split()[-1]))
        return Printed(int(end.value.code or 0), printed.out, printed.err)

    return run_words


async def known(bootstrap: str, topic: str) -> None:
    """Wait for a topic: what Kafka's controller has made its broker sees a moment later."""
    async with asyncio.timeout(HANGING_SECONDS), AdminClient(bootstrap_servers=bootstrap) as admin:
        while topic not in await admin.list_topics():
            await asyncio.sleep(0.01)


async def produce(bootstrap: str, topic: str) -> None:
    """Four records to partition 0, at times 1000, 2000, 3000 and 4000 ms."""
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(1, RECORDS + 1):
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=number * 1_000)


async def consume(bootstrap: str, group: str, topic: str) -> int:
    """Accept everything that is there; how many records that was."""
    options = {"bootstrap_servers": bootstrap, "group_id": group}
    async with asyncio.timeout(HANGING_SECONDS), ShareConsumer(topic, **options) as consumer:  # type: ignore[arg-type]
        count = 0
        while count < RECORDS:
            count += len(await consumer.poll(timeout=10))
        await consumer.commit()
        return count


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[None]:
    """A member of the group, on a thread of its own, while the context is open."""
    ready, stop = threading.Event(), threading.Event()

    async def stay() -> None:
        options = {"bootstrap_servers": bootstrap, "group_id": group, "client_id": "resident"}
        async with ShareConsumer(topic, **options) as consumer:  # type: ignore[arg-type]
            while not stop.is_set():
                await consumer.poll(timeout=0.05)
                if consumer.assignment:
                    ready.set()

    thread = threading.Thread(target=asyncio.run, args=(stay(),))
    thread.start()
    try:
        assert ready.wait(HANGING_SECONDS), "the member got no assignment"
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def consumer(
    bootstrap: str, group: str, *topics: str, commit: int, protocol: str = "classic"
) -> Iterator[None]:
    """A member of a consumer group, of another library, that has committed an offset."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": group, "client.id": "reader",
            "group.protocol": protocol, "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    try:
        reader.subscribe(list(topics))
        assert reader.poll(20) is not None, "the member got no record"
        reader.commit(
            offsets=[ConfluentPartition(topic, 0, commit) for topic in topics], asynchronous=False
        )
        yield
    finally:
        reader.close()


@pytest.fixture
def consumed(request: pytest.FixtureRequest, run: Run, bootstrap: str) -> str:
    """A topic and a group of one name, whose four records are all accepted."""
    plain = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = plain.strip("-")[-60:]
    set_up(bootstrap, name)
    if chosen() == KAFKA:
        # The start offset that Kafka tells trails until the next write: docs/differences.md.
        run(f"groups reset-offsets {name} --topic {name} --to-latest --execute")
    return name


def set_up(bootstrap: str, name: str) -> None:
    """Make a topic and a group of one name, and have the group consume four records.

    The first time it takes seconds on Kafka, which makes its topic of share states then.
    """
    earliest = AlterConfig("share.auto.offset.reset", "earliest")
    group = ConfigResource(ResourceType.GROUP, name)

    async def fill() -> int:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            assert await admin.create_topics([NewTopic(name, 1)]) == {name: None}
            assert await admin.incremental_alter_configs({group: [earliest]}) == {group: None}
        await produce(bootstrap, name)
        return await consume(bootstrap, name, name)

    assert asyncio.run(fill()) == RECORDS
