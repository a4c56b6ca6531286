"""Batches that nobody can read: a worker writes a dead letter with their bytes, and goes on."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from sharegroup.client import Producer
from sharegroup.dead_letters.letter import Letter, letter_of
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.redrive import Redrive
from sharegroup.dead_letters.redrive_copies import RedriveOptions
from sharegroup.dead_letters.story_headers import SUSPICIONS
from sharegroup.ids import TopicName
from sharegroup.testing import broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.worker import App, DeadLetter, OnUnreadable
from sharegroup.worker.events import Event
from tests.integration.client.test_unreadable_batches import SOUND, damaged_topic, remaining
from tests.integration.worker.dead import lying_in, make_topics
from tests.integration.worker.test_running import named, until
from tests.support.limits import HANGING_SECONDS
from tests.support.unreadable import cut_off, untrue

HANDLED = "SHAREGROUP_TEST_HANDLED"
RECORDS_AT = 61
"""Where the records of a batch begin; the header has the time at which the test made it."""


def note(value: bytes) -> None:
    """A handler that leaves a trace, also from another process."""
    with Path(os.environ[HANDLED]).open("ab") as file:
        file.write(value + b"\n")


@pytest.fixture
def handled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HANDLED, str(tmp_path / "handled"))
    return tmp_path / "handled"


def seen(handled: Path) -> list[bytes]:
    return sorted(handled.read_bytes().split()) if handled.exists() else []


def told(letter: Letter, name: str) -> int:
    return int(letter.told["__sharegroup.dead." + name] or b"")


@pytest.mark.parametrize("processes", [0, 1], ids=["threads", "processes"])
def test_worker_writes_a_letter_with_the_bytes_of_each_batch(processes: int, handled: Path) -> None:
    async def scenario() -> None:
        async with damaged_topic() as bootstrap:
            app = App("billing", bootstrap_servers=bootstrap)
            events: list[Event] = []
            app.on("*", events.append)
            app.share_group("g", topics="t", processes=processes)(note)
            async with app:
                await until(lambda: len(seen(handled)) == len(SOUND))
                while await remaining(bootstrap) != 0:
                    await asyncio.sleep(0.02)
            assert seen(handled) == SOUND
            parts = len(named(events, "record.unreadable"))
            assert len(named(events, "record.dead_lettered")) == parts >= 2
            async with (
                DeadLetterQueue("g.dead", bootstrap_servers=bootstrap) as queue,
                Producer(bootstrap_servers=bootstrap) as producer,
            ):
                redriven = await Redrive(queue, producer, RedriveOptions()).run(asyncio.Event())
            assert (redriven.sent, redriven.left) == ({}, {"unreadable-batch": parts})
            letters = [
                letter_of("g.dead", 0, record) for record in await lying_in(bootstrap, "g.dead")
            ]
        assert {letter.death.reason for letter in letters} == {"damaged"}
        assert len(letters) == parts
        of_batch = {told(letter, "batch.offset"): letter for letter in letters if letter.value}
        for offset, bad in zip(sorted(of_batch), (cut_off(), untrue()), strict=True):
            letter = of_batch[offset]
            assert letter.value is not None
            assert letter.value[RECORDS_AT:] == bad[RECORDS_AT:]
            assert told(letter, "batch.bytes") == len(bad)
            covered = [
                (letter.story.origin.offset, told(letter, "last.offset"))
                for letter in letters
                if letter.story.origin is not None and told(letter, "batch.offset") == offset
            ]
            assert sum(last + 1 - first for first, last in covered) == 400
            first, last = min(covered)
            assert first == offset
            text = f"offsets {first} to {last} cannot be read"
            assert any(text in letter.death.error_message for letter in letters)
            assert len({first for first, _ in covered}) == len(covered)

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("choice", [OnUnreadable.REJECT, OnUnreadable.RELEASE])
def test_the_routes_option_decides_about_batches_too(choice: OnUnreadable, handled: Path) -> None:
    async def scenario() -> None:
        async with damaged_topic() as bootstrap:
            app = App("billing", bootstrap_servers=bootstrap)
            events: list[Event] = []
            app.on("*", events.append)
            app.share_group("g", topics="t", unreadable=choice)(note)
            expected = "record.released" if choice == "release" else "record.rejected"
            async with app:
                await until(lambda: len(seen(handled)) == len(SOUND))
                await until(lambda: len(named(events, expected)) >= 2)
            assert await lying_in(bootstrap, "g.dead") == []
            assert not named(events, "record.dead_lettered")

    asyncio.run(scenario())


def record(value: bytes, *headers: tuple[str, bytes | None]) -> bytearray:
    return encode_batch([SimpleRecord(None, value, 0, headers)])


@pytest.mark.slow
def test_suspects_around_an_unreadable_batch_outlast_two_stops() -> None:
    """While a suspect runs alone, a batch that nobody can read and another suspect wait in the
    client: five retries before them let the worker take more records at a time, and the late
    fetch brings all three, of one partition each.  A stop moves the suspect behind the batch,
    too.  No suspect has a letter.
    """

    async def scenario() -> None:
        async with asyncio.timeout(HANGING_SECONDS), broker() as there:
            bootstrap = there.bootstrap_servers
            ran, goes_on = Counter[bytes](), asyncio.Event()
            aside: list[int] = []
            letters: list[Event] = []

            async def handle(value: bytes) -> None:
                ran[value] += 1
                if value != b"honest":
                    await goes_on.wait()

            def new_app() -> App:
                app = App("billing", bootstrap_servers=bootstrap)
                app.share_group("g", topics="t", dead_letter=DeadLetter("g.dead"))(handle)
                app.on("record.put_aside", lambda event: aside.append(event.partition))
                app.on("record.dead_lettered", lambda event: letters.append(event))
                return app

            async def append(partition: int, batch: bytes) -> None:
                log = there.running.parts.topics.named(TopicName("g.retry"), partition)[1]
                await log.append(bytearray(batch), now_ms=time.time_ns() // 1_000_000)

            await make_topics(bootstrap, "t")
            await make_topics(bootstrap, "g.retry", partitions=3)
            for _ in range(5):
                await append(0, record(b"honest"))
            async with new_app() as app:
                await until(lambda: ran[b"honest"] == 5)
                with there.delay("ShareFetch", 3.0, times=None) as late:
                    await until(lambda: late.count >= 2)  # Of each topic's member.
                    await append(0, record(b"one", (SUSPICIONS, b"1")))
                    await append(1, untrue(3))
                    await append(2, record(b"two", (SUSPICIONS, b"1")))
                await until(lambda: ran.total() == 5 + 1)
                await app.stop(0)
            # One of them was only fetched: it did not run.
            assert (sorted(aside), ran.total()) == ([0, 2], 5 + 1)
            async with new_app() as app:
                await until(lambda: ran.total() == 5 + 2)
                await app.stop(0)
            goes_on.set()
            async with new_app():
                await until(lambda: letters and {b"one", b"two"} <= ran.keys())
            assert (ran[b"honest"], {event.details["reason"] for event in letters}) == (
                5,
                {"damaged"},
            )

    asyncio.run(scenario())
