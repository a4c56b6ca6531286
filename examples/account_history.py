"""A history per account: a consumer group keeps the order of each account over all processes.

    pip install '.[worker]'
    sharegroup serve --port 9092
    sharegroup worker examples.account_history:app     # as many of them as the topic has partitions
    echo '{"account": "ada", "number": 1, "amount": 30}' | sharegroup produce bookings --key ada

The history needs every booking of an account in its order.  A share group orders records in one
process only (`customer_orders.py`).  In a consumer group each partition has one owner, and with
``order_by="key"`` the owner handles the bookings of an account one after the other and those of
other accounts beside them.

A booking that fails is tried again in its place, so no later one of its account overtakes it.
After a crash some bookings run again; the unique number makes the second insert do nothing.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass

from sharegroup.worker import App, Retry

app = App("accounts")
app.topic("bookings", partitions=4)


@dataclass
class Booking:
    """A booking of an account, with its number in the account: 1, 2, 3, ..."""

    account: str
    number: int
    amount: int


@app.on_startup
def open_database() -> None:
    """Opens the database file, which all processes of this machine use."""
    database = sqlite3.connect(os.environ.get("ACCOUNTS", "accounts.sqlite"))
    database.execute(
        "create table if not exists history (account, number, amount, process, "
        "primary key (account, number))"
    )
    app.state.database = database


@app.on_shutdown
def close_database() -> None:
    app.state.database.close()


@app.consumer_group(
    "history",
    topics="bookings",
    order_by="key",
    concurrency=64,
    retry=Retry(max_attempts=10, initial_delay="100ms", max_delay="5s"),
)
async def write(booking: Booking) -> None:
    """Appends the booking to the history of its account."""
    with app.state.database as transaction:
        (last,) = transaction.execute(
            "select coalesce(max(number), 0) from history where account = ?", (booking.account,)
        ).fetchone()
        if booking.number <= last:
            return  # It runs again after a crash.
        if booking.number > last + 1:
            raise LookupError(f"{booking.account}: {booking.number} came after {last}")
        transaction.execute(
            "insert into history values (?, ?, ?, ?)",
            (booking.account, booking.number, booking.amount, os.getpid()),
        )
