"""Examples run: those in docstrings of public classes, and those in the README."""

from __future__ import annotations

import ast
import asyncio
import doctest
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sharegroup import client
from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
)
from sharegroup.client.net import refusals
from sharegroup.testing import broker, embedded, power_loss, virtual_time, virtual_time as clock
from sharegroup.testing.embedded import TestBroker
from tests.support.limits import HANGING_SECONDS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"Example::\n\n((?:[ ]{4,}.*\n|\n)+)")
PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
WORKER, PIPELINE, _ = PYTHON_BLOCK.findall((ROOT / "README.md").read_text())


def docstring_examples() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "src" / "sharegroup" / "client").rglob("*.py")):
        if "sync" in path.parts:
            continue  # These block, and examples run on an event loop.
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                for block in EXAMPLE.findall(text + "\n"):
                    yield f"{path.stem}.{node.name}", textwrap.dedent(block)


EXAMPLES = dict(docstring_examples())


async def with_an_order(running: TestBroker, group_id: str) -> None:
    """A topic with one record, and a group that begins at its start."""
    async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("orders", num_partitions=1)])
        resource = ConfigResource(ResourceType.GROUP, group_id)
        await admin.incremental_alter_configs(
            {resource: [AlterConfig("share.auto.offset.reset", "earliest")]}
        )
    async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        await (await producer.send("orders", b"one apple"))


async def lag(running: TestBroker, group_id: str) -> int | None:
    async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
        listed = await admin.list_share_group_offsets({group_id: None})
    return sum(lag_.lag or 0 for lag_ in listed[group_id].values()) if listed[group_id] else None


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_docstring_example_runs(name: str) -> None:
    async def run() -> None:
        async with broker() as running:
            await with_an_order(running, "billing")
            names: dict[str, object] = {name: getattr(client, name) for name in client.__all__}
            names["bootstrap_servers"] = running.bootstrap_servers
            source = "async def example():\n" + textwrap.indent(EXAMPLES[name], "    ")
            exec(compile(source, name, "exec"), names)
            async with asyncio.timeout(HANGING_SECONDS):
                await names["example"]()  # type: ignore[operator]
            if "ShareConsumer" in EXAMPLES[name]:
                assert await lag(running, "billing") == 0

    asyncio.run(run())


@pytest.mark.parametrize("module", [clock, embedded, power_loss, refusals, virtual_time])
def test_session_in_a_docstring_runs_as_written(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert failed == 0
    assert tried > 0


def test_examples_exist_for_the_three_clients() -> None:
    text = "\n".join(EXAMPLES)
    assert {"AdminClient", "Producer", "ShareConsumer"} <= {
        example.split(".")[1] for example in EXAMPLES
    }, text


def test_worker_of_the_readme_bills_an_order_and_buries_another(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("orders")
    monkeypatch.setitem(sys.modules, "orders", module)
    vars(module)["__name__"] = "orders"
    exec(compile(WORKER, "README.md", "exec"), vars(module))

    async def run() -> None:
        async with module.app.test() as t:
            sent = await t.send("orders", b'{"id": 1, "total": 30}')
            other = await t.send("orders", b'{"id": 2, "total": -1}')
            await t.settle()
            assert (sent.outcome, other.outcome) == ("accepted", "dead_lettered")

    asyncio.run(run())
    assert capsys.readouterr().out == "billed Order(id=1, total=30)\n"


def test_pipeline_of_the_readme_is_the_one_that_runs() -> None:
    """`tests/integration/spark` runs the first example of docs/spark.md."""
    page = (ROOT / "docs" / "spark.md").read_text()
    assert PYTHON_BLOCK.findall(page)[0] == PIPELINE
