"""The command line against a broker in the same process."""

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

from sharegroup.cli.main import main
from sharegroup.client import Producer, ShareConsumer
from sharegroup.testing import run_broker

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


Run = Callable[..., Printed]


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with run_broker({"num.partitions": "2"}) as broker:
        yield broker.bootstrap


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``sharegroup WORDS...`` against the broker."""

    def run_words(words: str, *more: str) -> Printed:
        with pytest.raises(SystemExit) as end:
            main([*words.split(), *more, "--bootstrap", bootstrap])
        printed = capsys.readouterr()
        return Printed(int(end.value.code or 0), printed.out, printed.err)

    return run_words


async def produce(bootstrap: str, topic: str) -> None:
    """Four records to partition 0, at times 1000, 2000, 3000 and 4000 ms."""
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(1, RECORDS + 1):
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=number * 1_000)


async def consume(bootstrap: str, group: str, topic: str) -> int:
    """Accept everything that is there; how many records that was."""
    options = {"bootstrap_servers": bootstrap, "group_id": group}
    async with ShareConsumer(topic, **options) as consumer:  # type: ignore[arg-type]
        count = 0
        while count < RECORDS:
            count += len(await consumer.poll(timeout=10))
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
        assert ready.wait(20), "the member got no assignment"
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def consumed(request: pytest.FixtureRequest, run: Run, bootstrap: str) -> str:
    """A topic and a group of one name, whose four records are all accepted."""
    plain = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = plain.strip("-")[-60:]
    run(f"topics create {name} --partitions 1")
    run(f"configs alter --group {name} --set share.auto.offset.reset=earliest")
    asyncio.run(produce(bootstrap, name))
    assert asyncio.run(consume(bootstrap, name, name)) == RECORDS
    return name
