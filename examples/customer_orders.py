"""Order per customer: records of one customer run in order, records of other customers in parallel.

    pip install '.[worker]'
    sharegroup serve --port 9092
    sharegroup worker examples.customer_orders:app
    echo '{"customer": "Ada", "version": 1, "amount": 30}' | sharegroup produce changes

A share group delivers records to any free member, so two events of one customer could be handled
at the same time.  With ``order_by`` they run one after the other, in the order of the log, while
the events of other customers run in parallel.

This holds within one process.  If several processes read one topic, two of them may have events of
the same customer.  So check a version in the database, as below, and retry an event that is too
early.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass

from sharegroup.worker import App, DeadLetter, Retry

app = App("customers")


class TooEarly(Exception):
    """The previous event of this customer is not in the database yet."""


@dataclass
class Changed:
    """A change of a customer's balance, with the number of the change: 1, 2, 3, ..."""

    customer: str
    version: int
    amount: int


@app.on_startup
def open_database() -> None:
    """Opens the database file; the first process creates the table."""
    database = sqlite3.connect(os.environ.get("CUSTOMERS", "customers.sqlite"))
    database.execute("create table if not exists customers (name primary key, version, balance)")
    app.state.database = database


@app.on_shutdown
def close_database() -> None:
    app.state.database.close()


@app.share_group(
    "balances",
    topics="changes",
    order_by=lambda changed: changed.customer,
    retry=Retry(
        max_attempts=20, initial_delay="50ms", multiplier=2, max_delay="5s", retry_on=(TooEarly,)
    ),
    dead_letter=DeadLetter("changes.dead"),
)
async def apply(changed: Changed) -> None:
    """Adds the change to the balance; skips a change that is already stored (a second run)."""
    with app.state.database as transaction:
        row = transaction.execute(
            "select version from customers where name = ?", (changed.customer,)
        ).fetchone()
        version = row[0] if row else 0
        if changed.version <= version:
            return
        if changed.version > version + 1:
            raise TooEarly(f"{changed.customer}: {changed.version} after {version}")
        transaction.execute(
            "insert into customers values (?, ?, ?) on conflict (name) "
            "do update set version = excluded.version, balance = balance + excluded.balance",
            (changed.customer, changed.version, changed.amount),
        )
