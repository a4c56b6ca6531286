"""A bug, its dead letters and their redrive: no record is lost, and no invoice is billed twice.

    pip install '.[worker]'
    sharegroup serve --port 9092
    sharegroup worker examples.after_a_bug:app            # with the bug: some invoices fail
    echo '{"number": 1, "cents": 100, "people": 0}' | sharegroup produce invoices
    sharegroup dlq list invoices.dead                     # the failed records and their errors
    FIXED=1 sharegroup worker examples.after_a_bug:app    # the bug is fixed: restart
    sharegroup dlq redrive invoices.dead --confirm invoices.retry    # send the records back

A redrive sends the records only to this group, with their history; other groups that read the
topic do not receive them again.  All copies of a record in one redrive carry the same id.  A
handler that must not do its work twice can store this id, like the id of a payment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sharegroup.worker import App, DeadLetter, Record, Retry

FIXED = bool(os.environ.get("FIXED"))
app = App("invoices")


@dataclass
class Invoice:
    """An amount in cents and the number of people who share it."""

    number: int
    cents: int
    people: int


@app.share_group(
    "invoices",
    topics="invoices",
    retry=Retry(max_attempts=2, initial_delay="100ms"),
    dead_letter=DeadLetter("invoices.dead"),
)
def split(invoice: Invoice, record: Record) -> None:
    """Divides an invoice into equal shares.  The bug: an invoice for zero people raises an error.

    This is a plain function.  It runs in a thread, so writing the file does not block the loop.
    """
    people = max(1, invoice.people) if FIXED else invoice.people
    share = invoice.cents // people
    with open(os.environ.get("SHARES", "shares.csv"), "a") as file:
        file.write(f"{invoice.number},{share},{record.redrive_id or ''}\n")
