"""A process that schedules a group's retries and nothing else, to be killed by tests.

    python -m tests.integration.worker.scheduling BOOTSTRAP GROUP TIER[,TIER...]

says ``ready`` when it owns partitions, and stops on SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sharegroup.client import AdminClient, Producer
from sharegroup.client.admin.types import NewTopic
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import TopicAlreadyExists
from sharegroup.waiting.retry_topics import scheduler_group
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declarations.handler import HandlerKind, HandlerShape
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.ports import WrittenRecord
from sharegroup.worker.retrying.postponer import Postponer, retry_topics
from sharegroup.worker.retrying.scheduler import Scheduler
from sharegroup.worker.retrying.tier_mover import Moving
from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog
from sharegroup.worker.transport.tier_moves_kafka import KafkaTierMoves
from tests.support.limits import HANGING_SECONDS

DELAYS = (0.2, 1.0, 3.0)
SESSION_MS = 2_000
"""What `conftest` lets the broker allow."""


class WallClock:
    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, when: float) -> None:
        await asyncio.sleep(max(0.0, when - time.monotonic()))


class Sending:
    """An `Outbox` over a producer: what is sent is under way before it is awaited."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, topic: str, value: bytes | None, **more: Any) -> Awaitable[WrittenRecord]:
        delivery = self._producer.send_now(topic, value, **more)
        if delivery is not None:
            return delivery
        return asyncio.ensure_future(self._producer.send_and_wait(topic, value, **more))


def route_of(group: str, delays: tuple[float, ...] = DELAYS, *, steering: bool = False) -> Route:
    shape = HandlerShape("bill", print, HandlerKind.FUNCTION, bytes, False, False)
    return Route(
        group=group, topics=("orders",), shape=shape, retry_tiers=delays, steering=steering
    )


async def make_tiers(
    bootstrap: str,
    *groups: str,
    delays: tuple[float, ...] = DELAYS,
    steering: bool = False,
    **options: Any,
) -> None:
    """The retry topics of these groups."""
    async with AdminClient(bootstrap_servers=bootstrap, **options) as admin:
        new = [
            NewTopic(topic.name, topic.partitions, 1, topic.configs)
            for group in groups
            for topic in retry_topics(route_of(group, delays, steering=steering))
        ]
        results = await admin.create_topics(new)
        for name, result in results.items():
            assert result is None or isinstance(result, TopicAlreadyExists), (name, result)


@asynccontextmanager
async def postponing(
    bootstrap: str, group: str, delays: tuple[float, ...] = DELAYS, **options: Any
) -> AsyncIterator[Postponer]:
    """A way into the group's tiers."""
    async with Producer(bootstrap_servers=bootstrap, linger_ms=0, **options) as producer:
        yield Postponer(Sending(producer), WallClock(), group, Tiers.of(delays))


@asynccontextmanager
async def scheduling(
    bootstrap: str,
    group: str,
    delays: tuple[float, ...] = DELAYS,
    *,
    steering: bool = False,
    **options: Any,
) -> AsyncIterator[Scheduler]:
    """A scheduler of the group that owns partitions."""
    async with Producer(bootstrap_servers=bootstrap, **options) as producer:
        config = ClientConfig(bootstrap_servers=bootstrap, **options)
        tier_log = KafkaTierLog(config, scheduler_group(group), session_ms=SESSION_MS)
        moves = KafkaTierMoves(config, group, tier_log) if steering else None
        scheduler = Scheduler(
            Moving(group, WallClock(), Sending(producer), tier_log, Tiers.of(delays), moves=moves)
        )
        running = asyncio.ensure_future(scheduler.run())
        try:
            async with asyncio.timeout(HANGING_SECONDS):
                while not scheduler.snapshot():
                    assert not running.done(), running.exception()
                    await asyncio.sleep(0.02)
            yield scheduler
        finally:
            await scheduler.stop()
            await running


@contextmanager
def process(
    bootstrap: str, group: str, delays: tuple[float, ...] = DELAYS, *, steering: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """The same in a process of its own, killed in the end if nobody did before."""
    texts = ",".join(map(str, delays))
    command = [sys.executable, "-m", "tests.integration.worker.scheduling", bootstrap, group, texts]
    command += ["steering"] if steering else []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"ready\n"
            yield started
        finally:
            started.kill()


async def _main(bootstrap: str, group: str, texts: str, *flags: str) -> None:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    delays = tuple(map(float, texts.split(",")))
    async with scheduling(bootstrap, group, delays, steering="steering" in flags):
        print("ready", flush=True)
        await asked.wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
