"""``sharegroup data backup``: a copy at one moment, of a broker that runs and is written to."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sharegroup.cli.broker import backup
from sharegroup.cli.broker.backup import LINKS, PARTIAL, broker_of
from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.client.records import TopicPartition
from sharegroup.errors import InvalidRequest
from sharegroup.storage.directory.log_directory import LOCK_FILE
from sharegroup.testing import run_broker
from tests.integration.cli.piping import sharegroup
from tests.integration.cli.test_json_keys import promised
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="brokers are paused on Linux alone")


def back_up(data: Path, target: Path) -> float:
    """Back up; return how long the broker was paused, in ms."""
    done = sharegroup("data", "backup", "--data", str(data), "--to", str(target), "--json")
    assert done.code == 0, done.err
    assert sharegroup("data", "check", "--data", str(target)).code == 0
    (row,) = json.loads(done.out)
    assert list(row) == promised("data backup")
    assert row["files"] > 2
    return row["paused_ms"]


async def numbers(bootstrap: str, topic: str, partition: int) -> list[int]:
    """The committed records of a partition."""
    async with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, 0)
        end = (await consumer.end_offsets([place]))[place]
        found: list[int] = []
        while await consumer.position(place) < end:
            found += [int(record.value or b"") for record in await consumer.poll(100)]
        return found


def test_backup_of_a_stopped_broker_pauses_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with run_broker(data=str(data)) as broker:
        broker.produce("orders", b"1")
    assert back_up(data, tmp_path / "copy") == 0
    with run_broker(data=str(tmp_path / "copy")) as broker:
        assert [record.value for record in broker.records("orders")] == [b"1"]


@pytest.mark.slow
def test_backups_of_a_busy_broker_are_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions over two partitions, with backups in between.

    Each copy has the records that were confirmed before it, and none without its other half.  Links
    take their time, as those of thousands of files do, so a broker that is not paused goes on.
    """

    def slowly(*arguments: Any) -> None:
        time.sleep(0.02)
        link_one(*arguments)

    link_one = backup._link_one
    monkeypatch.setattr(backup, "_link_one", slowly)
    data, copies = tmp_path / "data", [tmp_path / f"copy{number}" for number in range(4)]
    confirmed: list[int] = []
    least: list[int] = []

    async def write(bootstrap: str) -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic("pairs", num_partitions=2)])
        async with Producer(bootstrap_servers=bootstrap, transactional_id="writer") as producer:
            number = 0
            while len(least) < len(copies):
                async with producer.transaction():
                    for partition in (0, 1):
                        await producer.send("pairs", b"%d" % number, partition=partition)
                confirmed.append(number)
                number += 1

    async def back_up_all() -> None:
        for copy in copies:
            while len(confirmed) < 30 * (len(least) + 1):
                await asyncio.sleep(0.01)
            before = len(confirmed)
            await asyncio.to_thread(back_up, data, copy)
            least.append(before)

    async def both(bootstrap: str) -> None:
        await asyncio.gather(write(bootstrap), back_up_all())

    with ServeProcess(data, durability="os") as serve:
        asyncio.run(asyncio.wait_for(both(serve.bootstrap_servers), HANGING_SECONDS))
    for copy, count in zip(copies, least, strict=True):
        with run_broker(data=str(copy)) as broker:
            first, second = (
                asyncio.run(numbers(broker.bootstrap_servers, "pairs", partition))
                for partition in (0, 1)
            )
        assert first == second, "a transaction is half in the backup"
        assert first == list(range(len(first)))
        assert len(first) >= count, "a confirmed record is missing"


def test_accepted_records_are_not_delivered_again_by_the_copy(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"

    async def take(bootstrap: str, count: int) -> list[bytes | None]:
        taken: list[bytes | None] = []
        options = {"bootstrap_servers": bootstrap, "group_id": "g", "max_poll_records": 1}
        async with ShareConsumer(
            "orders", share_acknowledgement_mode="explicit", **options
        ) as consumer:
            while len(taken) < count:
                for record in await consumer.poll(1000):
                    consumer.acknowledge(record)
                    taken.append(record.value)
                await consumer.commit()
        return taken

    async def work(bootstrap: str) -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=1)])
            group = ConfigResource(ResourceType.GROUP, "g")
            earliest = AlterConfig("share.auto.offset.reset", "earliest")
            await admin.incremental_alter_configs({group: [earliest]})
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(4):
                await (await producer.send("orders", b"%d" % number))
        assert await take(bootstrap, 2) == [b"0", b"1"]

    with ServeProcess(data) as serve:
        asyncio.run(asyncio.wait_for(work(serve.bootstrap_servers), HANGING_SECONDS))
        assert back_up(data, copy) > 0
        rest = asyncio.run(asyncio.wait_for(take(serve.bootstrap_servers, 2), HANGING_SECONDS))
        assert rest == [b"2", b"3"], "the broker goes on after its pause"
    with run_broker(data=str(copy)) as broker:
        again = asyncio.run(asyncio.wait_for(take(broker.bootstrap_servers, 2), HANGING_SECONDS))
    assert again == [b"2", b"3"]


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process to pause, in place of a broker."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as broker:
        try:
            yield broker
        finally:
            broker.send_signal(signal.SIGCONT)
            broker.kill()


def test_a_broker_goes_on_if_the_backup_is_killed_in_the_pause(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from sharegroup.cli.broker.backup import paused\n"
        "pause = paused(int(sys.argv[1]))\n"
        "next(pause)\n"
        "print('paused', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with sleeping() as broker:
        killed = subprocess.Popen(
            [sys.executable, "-c", program, str(broker.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"paused\n"
        assert state(broker.pid) in "Tt"
        killed.kill()
        killed.communicate()
        deadline = time.monotonic() + HANGING_SECONDS
        while state(broker.pid) in "Tt":
            assert time.monotonic() < deadline, "the broker stays paused"
            time.sleep(0.01)


def test_a_pause_ends_in_a_program_with_more_descriptors_than_select_takes() -> None:
    program = (
        "import os, resource, sys\n"
        "from sharegroup.cli.broker.backup import paused\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, hard))\n"
        "while os.dup(0) < 1_100: pass\n"
        "pause = paused(int(sys.argv[1]))\n"
        "next(pause)\n"
        "pause.close()\n"
        "print('went on', flush=True)\n"
    )
    with sleeping() as broker:
        ended = subprocess.run(
            [sys.executable, "-c", program, str(broker.pid)],
            capture_output=True,
            timeout=HANGING_SECONDS,
        )
        assert (ended.stdout, ended.stderr) == (b"went on\n", b"")
        assert state(broker.pid) not in "Tt"


def test_a_process_that_has_not_locked_the_directory_is_not_paused(tmp_path: Path) -> None:
    """The number in the lock file may be that of a process in another container."""
    (tmp_path / LOCK_FILE).write_text(f"{os.getpid()}\n")
    with pytest.raises(InvalidRequest, match=r"cannot be seen from here; run the backup as its us"):
        broker_of(tmp_path)
    with (tmp_path / LOCK_FILE).open():
        assert broker_of(tmp_path) == os.getpid()


def test_an_interrupted_backup_leaves_no_complete_one(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with run_broker(data=str(data)) as broker:
        broker.produce("orders", b"1")
    (data / LINKS / "old").mkdir(parents=True)
    partial = tmp_path / f"copy{PARTIAL}"
    partial.mkdir()
    (partial / "catalog.journal").write_text("half")
    back_up(data, copy)
    assert not (data / LINKS).exists()
    assert not partial.exists()
    assert not (copy / LINKS).exists()


@pytest.mark.parametrize(
    ("target", "error"), [("copy", "exists already"), ("data/copy", "is inside of the data")]
)
def test_a_target_that_cannot_be_one_is_refused(tmp_path: Path, target: str, error: str) -> None:
    data = tmp_path / "data"
    with run_broker(data=str(data)) as broker:
        broker.produce("orders", b"1")
    (tmp_path / "copy").mkdir()
    before = sorted(path.name for path in data.iterdir())
    done = sharegroup("data", "backup", "--data", str(data), "--to", str(tmp_path / target))
    assert done.code == 1
    assert re.search(error, done.err)
    assert sorted(path.name for path in data.iterdir()) == before
