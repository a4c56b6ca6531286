"""What the console costs: with 5,000 topics and 1,000 groups of 100 members, and beside a broker.

    python -m tests.bench.console            # both parts, about four minutes
    python -m tests.bench.console --scale    # the first alone
    python -m tests.bench.console --beside

The members of the first part are made: the admin client's answers get 100 members for each group,
which the console keeps and shows as it would from a broker.  Topics, groups and offsets are real.
The second part runs pairs of share consumers' throughput, with and without ten open pages.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import Request, urlopen

import psutil
import uvicorn

from sharegroup.client import AdminClient, NewTopic, ShareMemberDescription, TopicPartition
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.client.sync import AdminClient as BlockingAdmin, Producer, ShareConsumer
from sharegroup.console.application import Console, application_of
from sharegroup.console.settings import ConsoleSettings
from tests.support.console_scene import console
from tests.support.processes import ServeProcess

TOPICS, GROUPS, MEMBERS = 5_000, 1_000, 100
IDLE_SECONDS = 30.0
PAIRS = 4
PAIR_SECONDS = 8.0
BROWSERS = 10
SETTINGS = {"group.share.assignment.interval.ms": "0"}


class CrowdedAdmin:
    """An admin client whose groups have made members."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)

    async def describe_share_groups(self, group_ids: Any, **options: Any) -> Any:
        described = await self._admin.describe_share_groups(group_ids, **options)
        return {
            group_id: replace(group, members=tuple(_members(group_id)))
            for group_id, group in described.items()
        }


def _members(group_id: str) -> Iterator[ShareMemberDescription]:
    for number in range(MEMBERS):
        yield ShareMemberDescription(
            member_id=f"{group_id}-member-{number:03}-abcdefghijkl",
            client_id=f"worker-{number}",
            host="/10.1.2.3",
            rack_id=None,
            member_epoch=3,
            assignment=(TopicPartition("topic-0000", 0),),
            subscribed_topics=("topic-0000",),
        )


def scale(folder: Path) -> None:
    """Print the time of pages, the idle load and the memory with many topics and groups."""
    with ServeProcess(folder / "data", settings=SETTINGS, durability="os") as broker:
        asyncio.run(_fill(broker.bootstrap_servers))
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.close(read)
            asyncio.run(_crowded(broker.bootstrap_servers, write))
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            url = told.readline().strip()
            process = psutil.Process(child)
            try:
                _measure(url, process, broker)
            finally:
                process.terminate()
                os.waitpid(child, 0)


def _measure(url: str, process: psutil.Process, broker: ServeProcess) -> None:
    print(f"first page                 {_timed(url):6.2f} s")
    time.sleep(25)  # Every group is described once.
    for path in ("/", "/groups", "/topics", "/group?id=group-0007", "/letters"):
        times = [_timed(url + path) for _ in range(5)]
        print(f"GET {path:22} {statistics.median(times):6.3f} s")
    for name, watched in (("a page is open", True), ("idle", False)):
        if not watched:
            time.sleep(12)  # The last page counts as looked at for ten seconds.
        stop = Event()
        looking = Thread(target=_look, args=(url, stop)) if watched else None
        if looking is not None:
            looking.start()
        before, broker_before = sum(process.cpu_times()[:2]), broker.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        used = (sum(process.cpu_times()[:2]) - before) / IDLE_SECONDS
        broker_used = (broker.cpu_seconds() - broker_before) / IDLE_SECONDS
        stop.set()
        if looking is not None:
            looking.join()
        print(f"{name:16} console {used:6.1%} of a core, broker {broker_used:6.1%}")
    print(f"memory                     {process.memory_info().rss / 2**20:6.0f} MiB")


async def _fill(bootstrap_servers: str) -> None:
    async with AdminClient(bootstrap_servers=bootstrap_servers) as admin:
        names = [f"topic-{number:04}" for number in range(TOPICS)]
        for first in range(0, TOPICS, 500):
            await admin.create_topics([NewTopic(name, 1) for name in names[first : first + 500]])
        for number in range(GROUPS):
            where = {TopicPartition(names[number], 0): 0}
            await admin.alter_share_group_offsets(f"group-{number:04}", where)


async def _crowded(bootstrap_servers: str, told: int) -> None:
    made = Console(
        ConsoleSettings(client_options=ClientOptions(bootstrap_servers=bootstrap_servers))
    )
    config = uvicorn.Config(application_of(made), port=0, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started or made._watcher is None:
        await asyncio.sleep(0.001)
    made._watcher._admin = CrowdedAdmin(made._watcher._admin)  # type: ignore[assignment]
    port = server.servers[0].sockets[0].getsockname()[1]
    os.write(told, f"http://127.0.0.1:{port}\n".encode())
    await serving


def _timed(url: str) -> float:
    began = time.monotonic()
    with urlopen(url) as page:
        page.read()
    return time.monotonic() - began


def _look(url: str, stop: Event) -> None:
    """Read the live values of a page until the end."""
    with urlopen(Request(url, headers={"Accept": "text/event-stream"})) as stream:
        for _ in stream:
            if stop.is_set():
                return


def beside(folder: Path) -> None:
    """Print the throughput of a share group with ten open pages, as a part of that without."""
    ratios = []
    with ServeProcess(folder / "data", settings=SETTINGS, durability="os") as broker:
        address = broker.bootstrap_servers
        with BlockingAdmin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("orders", 4)])
        with console(address, log=folder / "console.log") as url:
            for pair in range(PAIRS):
                rates = {}
                order = (False, True) if pair % 2 else (True, False)
                for is_watched in order:
                    with _browsers(url if is_watched else None):
                        rates[is_watched] = _throughput(address)
                ratios.append(rates[True] / rates[False])
                print(
                    f"pair {pair}: {rates[False]:,.0f} records/s, with ten pages {rates[True]:,.0f}"
                )
    print(f"with ten pages             {statistics.median(ratios):6.3f} of the throughput without")


@contextmanager
def _browsers(url: str | None) -> Iterator[None]:
    stop = Event()
    pages = ("/", "/groups", "/group?id=billing", "/topics", "/topic?name=orders")
    threads = [
        Thread(target=_look, args=(url + pages[number % len(pages)], stop))
        for number in range(BROWSERS if url else 0)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _throughput(address: str) -> float:
    """Return the records per second that are produced, acquired and settled."""
    with ExitStack() as stack:
        producer = stack.enter_context(Producer(bootstrap_servers=address))
        consumer = stack.enter_context(
            ShareConsumer("orders", group_id="billing", bootstrap_servers=address)
        )
        consumer.poll(timeout=1)
        value, count = b"x" * 200, 0
        end = time.monotonic() + PAIR_SECONDS
        while time.monotonic() < end:
            for _ in range(500):
                producer.send("orders", value)
            count += len(consumer.poll(timeout=0.05))
        return count / PAIR_SECONDS


def main() -> int:
    """Run the parts that were asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", action="store_true", help="many topics and groups")
    parser.add_argument("--beside", action="store_true", help="throughput with ten open pages")
    asked = parser.parse_args()
    for name, part in (("scale", scale), ("beside", beside)):
        if getattr(asked, name) or not (asked.scale or asked.beside):
            with tempfile.TemporaryDirectory() as folder:
                part(Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
