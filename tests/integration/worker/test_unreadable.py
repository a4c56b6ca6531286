"""Batches that nobody can read: a worker writes a dead letter with their bytes, and goes on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sharegroup.client import Producer
from sharegroup.dead_letters.letter import Letter, letter_of
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.redrive import Redrive, RedriveOptions
from sharegroup.worker import App, OnUnreadable
from sharegroup.worker.events import Event
from tests.integration.client.test_unreadable_batches import SOUND, damaged_topic, remaining
from tests.integration.worker.dead import lying_in
from tests.integration.worker.test_running import named, until
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
