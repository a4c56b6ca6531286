"""What the console costs: with 5,000 topics and 1,000 groups of 100 members, and beside a broker.

    python -m tests.bench.console            # both parts, about six minutes
    python -m tests.bench.console --scale    # the first alone
    python -m tests.bench.console --beside

The first part prints CPU time of both processes.  Topics, groups, members and offsets are real;
the members have joined with one heartbeat each, which is enough for an hour.
The second part runs pairs of a share group's throughput, with and without ten open pages.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from urllib.request import Request, urlopen
from uuid import uuid4

import psutil
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from sharegroup.client import AdminClient, NewTopic, TopicPartition
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.connection import Connection
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.client.sync import AdminClient as BlockingAdmin, Producer, ShareConsumer
from tests.support.console_scene import console
from tests.support.processes import ServeProcess

TOPICS, GROUPS, MEMBERS = 5_000, 1_000, 100
IDLE_SECONDS = 30.0
SEEN = ("/", "/groups", "/group?id=billing", "/topics", "/topic?name=orders")
"""The pages that the browsers of the second part show."""
PAIRS = 10
PAIR_SECONDS = 8.0
LOOKING = b"looking\n"
BROWSERS = 10
RETURN_SECONDS = 15.0
SETTINGS = {"group.share.assignment.interval.ms": "0"}
CROWDED = {
    "group.share.session.timeout.ms": "3600000",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.assignment.interval.ms": "15000",
    "sharegroup.share.groups.bytes.max": "1000000000",
}
"""Members that joined once stay for the whole run, and 100,000 of them have room."""


def scale(folder: Path) -> None:
    """Print the time of pages, the CPU time and the memory with many topics and groups."""
    with ServeProcess(folder / "data", settings=CROWDED, durability="os") as broker:
        asyncio.run(_fill(broker.bootstrap_servers))
        own = _used(broker, IDLE_SECONDS / 2)
        print(f"no console                               broker {own:6.1%} of a core", flush=True)
        with console(broker.bootstrap_servers, "--history", "none", log=folder / "log") as url:
            _measure(url, _console_process(), broker)


def _console_process() -> psutil.Process:
    [process] = (child for child in psutil.Process().children() if "console" in child.cmdline())
    return process


def _measure(url: str, process: psutil.Process, broker: ServeProcess) -> None:
    print(f"first page                 {_timed(url):6.2f} s")
    time.sleep(25)  # Every group is described once.
    for path in ("/", "/groups", "/topics", "/group?id=group-0007", "/letters"):
        times = [_timed(url + path) for _ in range(5)]
        print(f"GET {path:22} {statistics.median(times):6.3f} s")
    for name, browsers in (("a page is open", 1), ("ten pages are open", BROWSERS), ("idle", 0)):
        with _browsers(url, browsers, ("/", "/groups", "/topics", "/group?id=group-0007")):
            time.sleep(12)  # The last page counts as looked at for ten seconds.
            before = sum(process.cpu_times()[:2])
            broker_used = _used(broker, IDLE_SECONDS)
            used = (sum(process.cpu_times()[:2]) - before) / IDLE_SECONDS
        print(f"{name:19} console {used:6.1%} of a core, broker {broker_used:6.1%}", flush=True)
    time.sleep(RETURN_SECONDS)
    print(f"first page after a break   {_timed(url):6.2f} s")
    print(f"memory                     {process.memory_info().rss / 2**20:6.0f} MiB")


def _used(broker: ServeProcess, seconds: float) -> float:
    """Return the part of a core that the broker uses within a time."""
    before = broker.cpu_seconds()
    time.sleep(seconds)
    return (broker.cpu_seconds() - before) / seconds


async def _fill(bootstrap_servers: str) -> None:
    names = [f"topic-{number:04}" for number in range(TOPICS)]
    async with AdminClient(bootstrap_servers=bootstrap_servers) as admin:
        for first in range(0, TOPICS, 500):
            await admin.create_topics([NewTopic(name, 1) for name in names[first : first + 500]])
        for number in range(GROUPS):
            where = {TopicPartition(names[number], 0): 0}
            await admin.alter_share_group_offsets(f"group-{number:04}", where)
    cluster = Cluster(config_from(ReadingConfig, {"bootstrap_servers": bootstrap_servers}))
    try:
        connection = await cluster.any_connection()
        for number in range(GROUPS):
            await asyncio.gather(
                *(_join(connection, f"group-{number:04}", names[number]) for _ in range(MEMBERS))
            )
    finally:
        cluster.close()


async def _join(connection: Connection, group_id: str, topic: str) -> None:
    request = ShareGroupHeartbeatRequest(
        group_id=GroupId(group_id),
        member_id=str(uuid4()),
        member_epoch=i32(0),
        rack_id=None,
        subscribed_topic_names=(TopicName(topic),),
    )
    answer = await connection.request(request)
    assert answer.error_code == 0, answer


def _timed(url: str) -> float:
    began = time.monotonic()
    with urlopen(url) as page:
        page.read()
    return time.monotonic() - began


def beside(folder: Path) -> None:
    """Print the throughput of a share group with ten open pages, as a part of that without."""
    shares: list[float] = []
    cpu_shares: list[float] = []
    with (
        ServeProcess(folder / "data", settings=SETTINGS, durability="os") as broker,
        ExitStack() as stack,
    ):
        address = broker.bootstrap_servers
        with BlockingAdmin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("orders", 4)])
        url = stack.enter_context(console(address, "--history", "none", log=folder / "log"))
        producer = stack.enter_context(Producer(bootstrap_servers=address))
        consumer = stack.enter_context(
            ShareConsumer("orders", group_id="billing", bootstrap_servers=address)
        )
        work = Work(broker, producer, consumer)
        for pair in range(PAIRS):
            found = {}
            for is_watched in (False, True) if pair % 2 else (True, False):
                with _browsers(url, BROWSERS if is_watched else 0, SEEN):
                    # Without browsers the last page counts as looked at for ten seconds.
                    work.throughput(2.0 if is_watched else 12.0)
                    found[is_watched] = work.throughput(PAIR_SECONDS)
            shares.append(found[True].by_second / found[False].by_second)
            cpu_shares.append(found[True].by_cpu_second / found[False].by_cpu_second)
            print(
                f"pair {pair:2}: {found[False].by_second:7,.0f} records/s, with ten pages "
                f"{found[True].by_second:7,.0f}; by CPU second of the broker "
                f"{found[False].by_cpu_second:7,.0f} and {found[True].by_cpu_second:7,.0f}",
                flush=True,
            )
    print(f"with ten pages {statistics.median(shares):6.3f} of the throughput without")
    print(f"by CPU second  {statistics.median(cpu_shares):6.3f}")


class Throughput(NamedTuple):
    """Records that were settled."""

    by_second: float
    by_cpu_second: float
    """The same by a second of the broker's CPU time, which other programs disturb less."""


class Work(NamedTuple):
    """A group that settles what is produced."""

    broker: ServeProcess
    producer: Producer
    consumer: ShareConsumer

    def throughput(self, seconds: float) -> Throughput:
        """Produce, acquire and settle for a time."""
        value, count = b"x" * 200, 0
        began, cpu_began = time.monotonic(), self.broker.cpu_seconds()
        while (passed := time.monotonic() - began) < seconds:
            for _ in range(500):
                self.producer.send("orders", value)
            count += len(self.consumer.poll(timeout=0.05))
        return Throughput(count / passed, count / (self.broker.cpu_seconds() - cpu_began))


@contextmanager
def _browsers(url: str, count: int, pages: Sequence[str]) -> Iterator[None]:
    """Keep pages open, in a process of its own."""
    if not count:
        yield
        return
    looked_at = [url + pages[number % len(pages)] for number in range(count)]
    command = [sys.executable, "-m", "tests.bench.console", "--look", *looked_at]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as browsers:
        assert browsers.stdout is not None
        assert browsers.stdout.readline() == LOOKING
        try:
            yield
        finally:
            browsers.terminate()


def _look_at(urls: Sequence[str]) -> None:
    """Read the live values of pages until the process is ended."""
    threads = [Thread(target=_look, args=(url,)) for url in urls]
    for thread in threads:
        thread.start()
    print(LOOKING.decode(), end="", flush=True)
    for thread in threads:
        thread.join()


def _look(url: str) -> None:
    while True:  # The console ends a stream after some minutes.
        with urlopen(Request(url, headers={"Accept": "text/event-stream"})) as stream:
            for _ in stream:
                pass


def main() -> int:
    """Run the parts that were asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", action="store_true", help="many topics and groups")
    parser.add_argument("--beside", action="store_true", help="throughput with ten open pages")
    parser.add_argument("--look", nargs="+", metavar="URL", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.look:
        _look_at(asked.look)
    for name, part in (("scale", scale), ("beside", beside)):
        if getattr(asked, name) or not (asked.scale or asked.beside):
            with tempfile.TemporaryDirectory() as folder:
                part(Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
