"""docs/recovery.md, word for word: its commands for folders that were set aside do what it says.

The others are whole commands, which `make docs-test` runs.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.testing import run_broker
from tests.integration.cli.piping import Piped, sharegroup

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "recovery.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
LOGS, PUT_BACK = COMMANDS
CHECK = "sharegroup data check --data DIR"


async def fill(bootstrap: str) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", num_partitions=1)])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value in (b"zero", b"one", b"two"):
            await producer.send("orders", value)
            await producer.flush()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker that has stopped."""
    path = tmp_path / "data"
    with run_broker(data=str(path)) as broker:
        asyncio.run(fill(broker.bootstrap_servers))
    return path


def run(command: str, data: Path, **names: str) -> Piped:
    """A command of the page, with these names in it."""
    for name, value in {"DIR": str(data), **names}.items():
        command = command.replace(name, value)
    program, *words = shlex.split(command)
    assert program == "sharegroup"
    return sharegroup(*words)


def orders(data: Path) -> Path:
    [folder] = [
        path.parent
        for path in data.glob("*-0/partition.metadata")
        if "topic_name: orders\n" in path.read_text()
    ]
    return folder


def test_records_that_were_set_aside_can_be_printed(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").unlink()
    path = next(orders(data).glob("*.log"))
    content = bytearray(path.read_bytes())
    content[70] ^= 1  # In the first batch; the page says what becomes of the others.
    path.write_bytes(content)
    with run_broker(data=str(data)):
        pass
    [entry] = data.glob("set-aside/*-damaged-log")
    when = entry.name.removesuffix("-damaged-log")
    printed = run(LOGS, data, WHEN=when, FOLDER=path.parent.name)
    assert [line["value"] for line in printed.documents] == ["one", "two"]


def test_a_folder_that_was_moved_aside_can_be_put_back(data: Path) -> None:
    folder = orders(data)
    entry = data / "set-aside" / "20260101T000000Z-repair"
    entry.mkdir(parents=True)
    folder.rename(entry / folder.name)
    done = run(PUT_BACK, data, WHEN="20260101T000000Z", FOLDER=folder.name)
    assert done.code == 0
    assert run(CHECK, data).code == 0
