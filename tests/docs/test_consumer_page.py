"""The examples of docs/consumer.md run, each on a broker of its own with one order in it."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.client.settings.plain_consumer_config import ConsumerOptions
from sharegroup.testing import broker
from tests.support.limits import HANGING_SECONDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "consumer.md").read_text()
OPTIONS = (DOCS / "client-options.md").read_text()
NAMES, *BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with broker() as running:
            async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic("orders", num_partitions=1)])
            async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", b"one apple")
            names: dict[str, Any] = {}
            exec(compile(NAMES, "docs/consumer.md names", "exec"), names)
            names["bootstrap_servers"] = running.bootstrap_servers
            source = "async def example():\n" + textwrap.indent(BLOCKS[number], "    ")
            exec(compile(source, f"docs/consumer.md example {number + 1}", "exec"), names)
            async with asyncio.timeout(HANGING_SECONDS):
                await names["example"]()

    asyncio.run(run())
    assert "one apple" in capsys.readouterr().out


def test_every_option_is_explained() -> None:
    section = OPTIONS.split("\n## Consumer\n")[1].split("\n## ")[0] + OPTIONS.split("\n## ")[1]
    explained = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    assert explained >= set(ConsumerOptions.__annotations__)
