"""Who blocks the event loop is named while it does."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from typing import Any

import pytest

from sharegroup.worker.lifecycle.loop_watch import LoopWatch, place_of
from tests.support.limits import HANGING_SECONDS


class Heard(logging.Handler):
    """Lets a blocked loop go when it was told of."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.was_told = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.was_told.set()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture(autouse=True)
def listening(heard: Heard) -> object:
    logger = logging.getLogger("sharegroup.worker.lifecycle.loop_watch")
    logger.addHandler(heard)
    yield
    logger.removeHandler(heard)


def blocked_until_told(heard: Heard) -> None:
    assert heard.was_told.wait(HANGING_SECONDS)


def test_each_blocked_stretch_is_logged_once_with_the_blocking_line(heard: Heard) -> None:
    async def block_twice() -> None:
        with LoopWatch(blocked_seconds=0.05):
            for _ in range(2):
                await asyncio.sleep(0)
                heard.was_told.clear()
                blocked_until_told(heard)
                # The next beat ends the stretch.
                await asyncio.sleep(0.1)

    asyncio.run(block_twice())
    assert len(heard.lines) == 2
    assert all(line.startswith("event=loop.blocked seconds=0.") for line in heard.lines)


def test_a_loop_that_beats_is_left_alone(heard: Heard) -> None:
    async def wait() -> None:
        with LoopWatch(blocked_seconds=2.0):
            await asyncio.sleep(0)

    asyncio.run(wait())
    assert heard.lines == []
    assert [thread.name for thread in threading.enumerate() if thread.name == "loop-watch"] == []


def test_reported_place_is_in_the_handler_and_not_in_its_callees() -> None:
    def library() -> str:
        return place_of(sys._getframe())

    def bill() -> str:
        return library()

    ours: dict[str, Any] = {"__name__": "sharegroup.worker.running.handler_slot"}
    exec("def call(handler): return handler()", ours)
    file, _, name = ours["call"](bill).partition(" ")
    assert file.startswith("test_loop_watch.py:")
    assert name.endswith("<locals>.bill")
