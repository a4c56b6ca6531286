"""Orders that are priced, billed and mailed: handlers that ask, send on, and keep results.

    pip install '.[worker]'
    sharegroup serve --port 9092
    sharegroup worker examples.order_chain:app
    python -m examples.order_chain 7 3

The last line orders 3 pieces by the number 7, and prints the outcome.  Repeated, it orders
nothing: the order is sent once (``unique``), billed once (``once_by``), and has one result.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass

from sharegroup.worker import App, Reject, ResultState, SqliteStore

STORE = os.environ.get("STORE", "orders.db")
PRICE_CENTS = 250
LOOK_SECONDS = 0.2
store = SqliteStore(STORE)
app = App("order-chain", store=store)


@dataclass
class Order:
    """An order of a number of pieces; its price is added before it is sent."""

    id: int
    pieces: int
    cents: int = 0


@dataclass
class Invoice:
    """What is to be paid for an order."""

    order: int
    cents: int


billed = app.topic("billed", payload=Invoice)


@app.on_startup
def make_table() -> None:
    """Creates the table of the bills."""
    with closing(sqlite3.connect(STORE)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS bills (id integer, cents integer)")


@app.share_group("pricing", topics="price-requests", replies=True)
async def price(order: Order) -> int:
    """Returns the price to the client that asks; a rejection is an exception there."""
    if order.pieces < 1:
        raise Reject(f"{order.pieces} pieces; expected 1 or more")
    return order.pieces * PRICE_CENTS


@app.share_group(
    "billing",
    topics="orders",
    to=billed,
    result_for="1d",
    once_by=lambda order: order.id,
    once_for="7d",
)
async def bill(order: Order) -> Invoice:
    """Writes the bill and its mark in one transaction, and sends the invoice on."""
    store.connection().execute("INSERT INTO bills VALUES (?, ?)", (order.id, order.cents))
    return Invoice(order.id, order.cents)


@app.share_group("mailing", topics=billed, result_for="1d")
async def mail(invoice: Invoice) -> str:
    """Stands for a mail with the invoice.  Its result has the id of the order."""
    return f"order {invoice.order}: {invoice.cents / 100:.2f} EUR"


async def place(order: Order) -> str:
    """Ask for the price, send the order unless it was sent before, and return its id."""
    order.cents = await price.ask(order, timeout="10s")
    order_id = f"order-{order.id}"
    await bill.send(order, id=order_id, unique=order_id, for_="1d")
    return order_id


async def outcome(order_id: str) -> str:
    """Wait until the order is mailed or cannot be billed, and return the outcome."""
    while True:
        of_mail, of_bill = await mail.result(order_id), await bill.result(order_id)
        if of_mail is not None and of_mail.value is not None:
            return of_mail.value
        if of_bill is not None and of_bill.state is ResultState.FAILED:
            return f"not billed: {of_bill.error_text}"
        await asyncio.sleep(LOOK_SECONDS)


async def main(number: int, pieces: int) -> None:
    """Order so many pieces by this number, and print the outcome."""
    async with app.client():
        sys.stdout.write(await outcome(await place(Order(number, pieces))) + "\n")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
