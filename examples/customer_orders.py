"""Order per customer: what happens to one customer happens in turn, and to all others meanwhile.

    pip install 'sharegroup[worker]'
    sharegroup serve --port 9092
    sharegroup worker examples.customer_orders:app
    echo '{"customer": "Ada", "version": 1, "amount": 30}' | sharegroup produce changes

A share group hands records to whoever is free, so two events of one customer could be handled at
the same time.  With ``order_by`` they run one after the other, as they lie in the log, and the
events of others go on beside them.

That holds in one process.  Where several work on one topic, a customer's events may be in the
hands of two of them: then check a version in the database, as below, and let the one that is too
early come back.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass

from sharegroup.worker import App, DeadLetter, Retry

app = App("customers")


class TooEarly(Exception):
    """An event before this one is not in the database yet."""


@dataclass
class Changed:
    """A customer's balance, and the number of the change: 1, 2, 3, ..."""

    customer: str
    version: int
    amount: int


@app.on_startup
def open_database() -> None:
    """One file; whoever starts first makes the table."""
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
    """Add it up; a change that is there already is passed over, so a second run does no harm."""
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
