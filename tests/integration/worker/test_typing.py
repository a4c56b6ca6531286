"""What a type checker knows of an application: handlers keep their types, senders have one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

PROGRAM = """
from dataclasses import dataclass

from sharegroup.worker import App, DeadLetter, Record, Retry, share_group

app = App("orders-service")


@dataclass
class Order:
    total: int


@app.share_group(
    "billing", topics="orders", retry=Retry(retry_on=TimeoutError), dead_letter=DeadLetter()
)
async def bill(order: Order) -> None: ...


@app.share_group("audit", topics="orders")
def audit(order: Order, record: Record) -> int:
    return order.total


@app.share_group("loading", topics="orders", batch=10)
async def load(orders: list[Order], records: list[Record]) -> None: ...


@app.share_group("selling", topics="orders")
class Sell:
    def handle(self, order: Order) -> None: ...


@app.share_group("pricing", topics="orders", replies=True, result_for="1h")
async def price(order: Order) -> int:
    return order.total


async def plain(order: Order) -> None: ...


declared = share_group("plain", topics="orders", handler=plain)
app.routes(declared, share_group("object", topics="orders", handler=Sell()))


async def main() -> None:
    await bill(Order(3))
    total: int = audit(Order(3), wrong)  # error: name-defined
    await bill.send(Order(3), key="k", delay="10m")
    await load.send(Order(3))
    await declared.send(Order(3))
    Sell().handle(Order(3))
    written = await bill.send(Order(3))
    offset: int = written.offset
    await bill("text")  # error: arg-type
    await bill.send("text")  # error: arg-type
    await load.send([Order(3)])  # error: arg-type
    await declared.send(3)  # error: arg-type
    audit(Order(3))  # error: call-arg
    cents: int = await price.ask(Order(3), timeout="1s")
    text: str = await price.ask(Order(3), timeout="1s")  # error: assignment
    await price.ask("text", timeout="1s")  # error: call-overload
    found = await price.result("order-3")
    more: str | None = found.value if found else None  # error: assignment


@app.share_group("typo", topics="orders", concurency=3)  # error: call-overload
async def typo(order: Order) -> None: ...


@app.share_group("wrong", topics="orders", unreadable="skip")  # error: call-overload
async def wrong_value(order: Order) -> None: ...
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[int, str]]:
    """Line and rule of what mypy finds in the program."""
    folder: Path = tmp_path_factory.mktemp("typing")
    program = folder / "orders.py"
    program.write_text(PROGRAM)
    arguments = [
        "--strict",
        "--allow-untyped-decorators",
        "--no-error-summary",
        "--follow-imports=silent",
        "--config-file=",
    ]
    printed, problems, _ = api.run([*arguments, f"--cache-dir={folder}", str(program)])
    assert problems == ""
    return {
        (int(line), rule)
        for line, rule in re.findall(r"orders\.py:(\d+): error: .*\[([a-z-]+)\]", printed)
    }


@pytest.mark.slow
def test_type_checker_finds_exactly_the_expected_errors(found: set[tuple[int, str]]) -> None:
    expected = {
        (number, rule)
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        for rule in re.findall(r"# error: ([a-z-]+)", line)
    }
    assert len(expected) == 11
    assert found == expected
