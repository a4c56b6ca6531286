"""Payments that wait for their bank: an operator runs or cancels them, and quiets all workers.

    pip install '.[worker]'
    sharegroup serve --port 9092
    BANK=closed sharegroup worker examples.held_payments:app
    echo '{"number": 1, "account": "ada", "cents": 900}' | sharegroup produce payments
    sharegroup retries list payments                      # each waits an hour for its next attempt
    sharegroup worker quiet payments --bootstrap-server 127.0.0.1:9092     # on all machines
    sharegroup worker status payments --bootstrap-server 127.0.0.1:9092
    sharegroup worker stop payments --bootstrap-server 127.0.0.1:9092
    sharegroup worker examples.held_payments:app          # the bank is open again
    sharegroup retries cancel payments --where 'account == "mallory"'       # to payments.dead
    sharegroup retries run payments --error-class ConnectionError          # now, not in an hour

Without ``steering=True`` the waiting payments could be listed, but not run or cancelled.  Without
``announce=True`` each worker could be quieted and stopped on its own machine only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sharegroup.worker import App, DeadLetter, Retry

IS_CLOSED = os.environ.get("BANK") == "closed"
app = App("payments", announce=True)


@dataclass
class Payment:
    """An amount in cents for an account."""

    number: int
    account: str
    cents: int


@app.share_group(
    "payments",
    topics="payments",
    retry=Retry(max_attempts=24, initial_delay="1h", multiplier=1, retry_on=(ConnectionError,)),
    dead_letter=DeadLetter("payments.dead"),
    steering=True,
)
def pay(payment: Payment) -> None:
    """Pays, or fails while the bank is closed.  It runs in a thread, because it writes a file."""
    if IS_CLOSED:
        raise ConnectionError("the bank is closed")
    with open(os.environ.get("PAID", "paid.csv"), "a") as file:
        file.write(f"{payment.number},{payment.account},{payment.cents}\n")
