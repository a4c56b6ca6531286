"""Live processes of a group are counted from heartbeats, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sharegroup.errors import NetworkException, TopicAuthorizationFailed
from sharegroup.fleet.fleet import Heard
from sharegroup.fleet.heartbeats import Departed, Heartbeat
from sharegroup.testing import virtual_time
from sharegroup.worker.lifecycle.peers import Peers, watching
from tests.unit.fleet.test_fleet_records import BEAT
from tests.unit.worker.running.loop_clock import LoopClock

BROKER_AHEAD_MS = 3_600_000
"""The broker's clock is another one."""


class Topic:
    """The topic of the workers, with processes that write their heartbeats."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.unread: list[Heard] = []
        self.error: Exception | None = None
        self.peers = Peers("me", self.clock)

    def write(self, said: Heartbeat | Departed) -> None:
        self.unread.append(Heard(said, self.clock.wall_ms() + BROKER_AHEAD_MS))

    async def beat(self, worker_id: str, **changed: Any) -> None:
        """Write heartbeats until this is cancelled."""
        while True:
            self.write(beat_of(worker_id, **changed))
            await asyncio.sleep(10)

    async def read(self) -> Sequence[Heard]:
        if self.error is not None:
            raise self.error
        read, self.unread = self.unread, []
        return read


def beat_of(
    worker_id: str,
    *,
    groups: tuple[str, ...] = ("billing",),
    phase: str = "running",
    group_count: int = 1,
) -> Heartbeat:
    identity = replace(BEAT.identity, worker_id=worker_id, groups=groups, group_count=group_count)
    return replace(BEAT, identity=identity, phase=phase)


def play(scene: Callable[[Topic], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        topic = Topic()
        async with watching(topic.peers, topic, topic.clock):
            await scene(topic)

    virtual_time.run(run())


def test_process_is_known_after_its_own_heartbeat_and_time_for_the_others() -> None:
    async def scene(topic: Topic) -> None:
        others = asyncio.create_task(topic.beat("other"))
        await asyncio.sleep(9)
        assert topic.peers.processes_of("billing") is None
        mine = asyncio.create_task(topic.beat("me"))
        await asyncio.sleep(4)
        assert topic.peers.processes_of("billing") is None
        await asyncio.sleep(3)
        assert topic.peers.processes_of("billing") == 2
        others.cancel()
        mine.cancel()

    play(scene)


def test_killed_process_counts_until_it_is_lost_and_a_departed_one_no_more() -> None:
    async def scene(topic: Topic) -> None:
        mine, killed, leaving = [
            asyncio.create_task(topic.beat(name)) for name in ("me", "killed", "leaving")
        ]
        await asyncio.sleep(11)
        assert topic.peers.processes_of("billing") == 3
        leaving.cancel()
        topic.write(Departed("leaving"))
        killed.cancel()
        await asyncio.sleep(3)
        assert topic.peers.processes_of("billing") == 2
        await asyncio.sleep(22)
        assert topic.peers.processes_of("billing") == 2
        await asyncio.sleep(10)
        assert topic.peers.processes_of("billing") == 1
        mine.cancel()

    play(scene)


def test_processes_of_other_groups_and_those_that_take_no_records_are_not_counted() -> None:
    async def scene(topic: Topic) -> None:
        topic.write(beat_of("me"))
        topic.write(beat_of("b", groups=("audit",)))
        topic.write(beat_of("c", phase="quiet"))
        topic.write(beat_of("d", phase="stopping"))
        topic.write(beat_of("e", phase="failed"))
        topic.write(beat_of("f", phase="starting"))
        # Its heartbeat does not name all of its groups, so it may be one of them.
        topic.write(beat_of("g", groups=("audit",), group_count=30))
        await asyncio.sleep(9)
        assert topic.peers.processes_of("billing") == 3
        assert topic.peers.processes_of("audit") == 3

    play(scene)


def test_last_count_is_kept_for_a_minute_while_the_topic_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(topic: Topic) -> None:
        beats = [asyncio.create_task(topic.beat(name)) for name in ("me", "other")]
        await asyncio.sleep(11)
        topic.error = NetworkException("the broker is away")
        await asyncio.sleep(55)
        # The other one was not heard for a minute, because nobody was.
        assert topic.peers.processes_of("billing") == 2
        await asyncio.sleep(10)
        assert topic.peers.processes_of("billing") is None
        topic.error = None
        await asyncio.sleep(3)
        assert topic.peers.processes_of("billing") == 2
        for beat in beats:
            beat.cancel()

    play(scene)
    assert [message.split()[0] for message in caplog.messages] == ["event=rate.fleet_unread"] + [
        "event=rate.fleet_unread"
    ] * (len(caplog.messages) - 1)
    assert len([line for line in caplog.records if line.levelno == logging.WARNING]) == 1


def test_process_whose_heartbeats_are_not_written_does_not_know_its_part() -> None:
    async def scene(topic: Topic) -> None:
        others = asyncio.create_task(topic.beat("other"))
        mine = asyncio.create_task(topic.beat("me"))
        await asyncio.sleep(9)
        assert topic.peers.processes_of("billing") == 2
        mine.cancel()
        await asyncio.sleep(40)
        assert topic.peers.processes_of("billing") is None
        others.cancel()

    play(scene)


@pytest.mark.parametrize(
    "error", [TopicAuthorizationFailed("no right to read"), RuntimeError("a fault of ours")]
)
def test_error_ends_neither_the_watch_nor_the_worker(error: Exception) -> None:
    async def scene(topic: Topic) -> None:
        topic.error = error
        await asyncio.sleep(9)
        assert topic.peers.processes_of("billing") is None
        topic.error = None
        topic.write(beat_of("me"))
        await asyncio.sleep(9)
        assert topic.peers.processes_of("billing") == 1

    play(scene)


def test_lost_processes_take_no_memory() -> None:
    async def scene(topic: Topic) -> None:
        mine = asyncio.create_task(topic.beat("me"))
        for number in range(12_000):
            topic.write(beat_of(f"killed-{number}"))
            if number % 4_000 == 0:
                await asyncio.sleep(50)
        await asyncio.sleep(50)
        topic.write(beat_of("new"))
        await asyncio.sleep(5)
        assert topic.peers.processes_of("billing") == 2
        mine.cancel()

    play(scene)
