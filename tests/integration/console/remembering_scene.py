"""Consoles with --remember, and what is in the topics that they share."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sharegroup.client import AdminClient, ConsumerGroupDescription
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientOptions, ReadingConfig, config_from
from sharegroup.console.application import Console
from sharegroup.console.remember.shared_history import GROUP, SESSION_MS
from sharegroup.console.remember.topics import TOPICS, BlockReader
from sharegroup.console.settings import ConsoleSettings
from sharegroup.console.watch.history import Point, Tier
from tests.support.limits import HANGING_SECONDS

SECONDS = TOPICS[Tier.SECONDS]


@asynccontextmanager
async def remembering(options: ClientOptions) -> AsyncIterator[Console]:
    """A console with --remember, without its pages."""
    console = Console(ConsoleSettings(client_options=options, remember=True))
    async with console.running():
        yield console


def seconds_of(console: Console, group: str = "billing") -> list[Point]:
    """Return the points of a group that a console knows."""
    return list(console.history.of(group).seconds.since(0))


async def until(holds: Callable[[], Awaitable[bool] | bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(HANGING_SECONDS):
        while True:
            answer = holds()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.05)


async def owners(admin: AdminClient) -> list[str]:
    """Return the members of the consoles' group that have the partition."""
    group = (await admin.describe_groups([GROUP]))[GROUP]
    if not isinstance(group, ConsumerGroupDescription):
        return []
    return [member.member_id for member in group.members if SECONDS.where in member.assignment]


async def blocks_in(options: ClientOptions, group_id: str = "billing") -> tuple[list[Point], int]:
    """Return a group's points in the topic of the seconds, and how many blocks are passed over."""
    cluster = Cluster(config_from(ReadingConfig, {**options}))
    try:
        reader = BlockReader(cluster, Tier.SECONDS)
        points = [
            point
            async for block in reader.blocks(0)
            for group in block.groups
            if group.group_id == group_id
            for point in map(Point, *group.points)
        ]
        return points, reader.passed_over
    finally:
        cluster.close()


async def take_over(bootstrap_servers: str, group: str, log: Path) -> list[Point]:
    """Kill a console that owns the partition beside a second one, which takes over.

    Returns the points in the topic afterwards.  They begin with those of the killed console, and
    have each moment once.
    """
    options = ClientOptions(bootstrap_servers=bootstrap_servers)
    words = ["--bootstrap-server", bootstrap_servers, "--port", "0", "--remember"]
    with log.open("w") as lines:
        first = subprocess.Popen(
            [sys.executable, "-m", "sharegroup", "console", *words],
            stdout=subprocess.DEVNULL,
            stderr=lines,
        )
    async with AdminClient(**options) as admin:
        try:

            async def has_written() -> bool:
                return bool(await owners(admin)) and bool((await blocks_in(options, group))[0])

            await until(has_written)
            killed = (await owners(admin))[0]
            async with remembering(options) as second:
                await until(lambda: len(seconds_of(second, group)) >= 2)
                first.kill()
                first.wait()
                killed_at = time.monotonic()
                old, _ = await blocks_in(options, group)
                assert seconds_of(second, group)[: len(old)] == old

                async def has_taken_over() -> bool:
                    return killed not in await owners(admin) and bool(await owners(admin))

                await until(has_taken_over)
                assert time.monotonic() - killed_at < 3 * SESSION_MS / 1000
                seen = len(seconds_of(second, group))
                await until(lambda: len(seconds_of(second, group)) > seen)
        finally:
            first.kill()
            first.wait()
    points, passed_over = await blocks_in(options, group)
    assert (points[: len(old)], passed_over) == (old, 0)
    assert len(points) > len(old)
    assert [point.at_ms for point in points] == sorted({point.at_ms for point in points})
    return points
