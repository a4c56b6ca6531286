"""The examples in the docstrings run as they stand."""

import asyncio
import inspect
import textwrap
from typing import Any

import pytest

from sharegroup import client
from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.testing import broker


def example_of(documented: type[Any]) -> str:
    """The indented block after ``Example::``."""
    text = inspect.getdoc(documented) or ""
    _, marker, block = text.partition("Example::\n")
    assert marker, f"{documented.__name__} has no example"
    return textwrap.dedent(block)


@pytest.mark.parametrize("documented", [AdminClient, Producer, ShareConsumer])
def test_the_example_runs(documented: type[Any]) -> None:
    source = "async def example(bootstrap):\n" + textwrap.indent(example_of(documented), "    ")
    names: dict[str, Any] = {name: getattr(client, name) for name in client.__all__}
    exec(compile(source, documented.__name__, "exec"), names)

    async def run() -> None:
        async with broker() as running:
            if documented is ShareConsumer:
                await one_order(running.bootstrap)
            await names["example"](running.bootstrap)

    asyncio.run(run())


async def one_order(bootstrap: str) -> None:
    """What the consumer's example reads."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", 1)])
        group = ConfigResource(ResourceType.GROUP, "billing")
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        await admin.incremental_alter_configs({group: [earliest]})
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send("orders", b"one apple")
