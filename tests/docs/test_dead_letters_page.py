"""docs/dead-letters.md, word for word: its commands print what it says, its example redrives."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup import client
from sharegroup.client import AdminClient, AlterConfig, ConfigResource, ResourceType, ShareConsumer
from sharegroup.testing import TestBroker, run_broker

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "dead-letters.md").read_text()
SET_UP, LOOK, LETTER, _ = re.findall(r"```(?:sh|text)\n(.*?)```", PAGE, re.DOTALL)
(REDRIVE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SECONDS_MAX = 60.0


@pytest.fixture
def running() -> Iterator[TestBroker]:
    with run_broker() as broker:
        yield broker


def printed(commands: str, bootstrap: str) -> str:
    """What the commands write, each with the broker's address behind it, and a time to end."""
    ends = f"--timeout-ms {SECONDS_MAX * 500:.0f}"
    lines = [
        f"{line} --bootstrap {bootstrap} {ends if ' consume ' in line else ''}"
        for line in commands.splitlines()
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["/bin/sh", "-e", "-c", "\n".join(lines)],
        capture_output=True,
        env={**os.environ, "PATH": path},
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


async def redriven(bootstrap: str) -> tuple[bytes | None, list[tuple[str, bytes | None]]]:
    """Run the example, then take what it sent back."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        group = ConfigResource(ResourceType.GROUP, "redrive")
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        assert await admin.incremental_alter_configs({group: [earliest]}) == {group: None}
    names = {name: getattr(client, name) for name in client.__all__}
    exec(compile(REDRIVE, "docs/dead-letters.md", "exec"), names)
    await names["redrive"](bootstrap, "dlq.billing", 1)
    async with ShareConsumer("orders", bootstrap_servers=bootstrap, group_id="billing") as consumer:
        async for record in consumer:
            return record.value, list(record.headers)
    raise AssertionError("nothing came back")


def test_commands_of_the_page_work_as_documented(running: TestBroker) -> None:
    printed(SET_UP, running.bootstrap_servers)
    assert printed(LOOK, running.bootstrap_servers).endswith(LETTER)

    async def redrive() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            assert await redriven(running.bootstrap_servers) == (b"not an order", [])

    asyncio.run(redrive())
