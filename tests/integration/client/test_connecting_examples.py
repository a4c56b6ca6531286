"""The examples of docs/connecting.md run, in their order, against a broker in this process."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroup import client
from sharegroup.client import sync
from sharegroup.testing import run_broker

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "connecting.md").read_text()
NAMES, *BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
EXPECTED = (
    "",
    "[0, 1, 2]\nb'Dear 0'\nb'Dear 1'\nb'Dear 2'\n",
    None,
    "TopicPartition(topic='orders', partition=0) OffsetChange(old_offset=None, new_offset=1)\n",
    None,
    None,
    None,
)
"""What each example prints; None: something that differs from time to time."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with run_broker() as broker:
        with sync.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            long_ago = 1_000_000_000_000
            producer.send_and_wait("orders", b"one apple", timestamp_ms=long_ago)
        yield broker.bootstrap_servers


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_example_runs(
    index: int,
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "pencil")
    names: dict[str, Any] = {}
    exec(compile(NAMES, "names", "exec"), names)
    names["bootstrap_servers"] = bootstrap
    block = BLOCKS[index].replace("127.0.0.1:9092", bootstrap)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    result = eval(compile(block, f"block {index}", "exec", flags=flags), names)
    if inspect.iscoroutine(result):
        asyncio.run(result)
    printed = capsys.readouterr().out
    if EXPECTED[index] is None:
        assert printed
    else:
        assert printed == EXPECTED[index]


def test_all_methods_of_the_admin_client_are_named() -> None:
    methods = {
        name
        for name, method in vars(client.AdminClient).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_") and name != "close"
    }
    assert {name for name in methods if f"`{name}" not in TEXT} == set()
