"""The examples of docs/client.md run, each on a broker of its own with one order in it."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
)
from sharegroup.client.settings.client_config import ProducerOptions
from sharegroup.client.settings.consumer_config import ShareConsumerOptions
from sharegroup.testing import broker
from tests.support.limits import HANGING_SECONDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "client.md").read_text()
OPTIONS = (DOCS / "client-options.md").read_text()
NAMES, *BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example_runs(number: int) -> None:
    async def run() -> None:
        async with broker() as running:
            async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic("orders", num_partitions=1)])
                group = ConfigResource(ResourceType.GROUP, "billing")
                earliest = AlterConfig("share.auto.offset.reset", "earliest")
                await admin.incremental_alter_configs({group: [earliest]})
            async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", b"one apple")
            names: dict[str, Any] = {}
            exec(compile(NAMES, "docs/client.md names", "exec"), names)
            names["bootstrap_servers"] = running.bootstrap_servers
            source = "async def example():\n" + textwrap.indent(BLOCKS[number], "    ")
            exec(compile(source, f"docs/client.md example {number + 1}", "exec"), names)
            async with asyncio.timeout(HANGING_SECONDS):
                await names["example"]()

    asyncio.run(run())


def test_every_option_is_explained() -> None:
    own = {*ShareConsumerOptions.__annotations__, *ProducerOptions.__annotations__}
    assert {"in_flight_max", "linger_ms"} <= own
    rows = [line.split(" | ") for line in OPTIONS.splitlines() if line.startswith("| `")]
    explained = {row[0].strip("| `") for row in rows if len(row[2].split()) >= 3}
    assert own - explained == set()
