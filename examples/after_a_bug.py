"""A bug, its dead letters, and the way back: nothing is lost, and nothing is billed twice.

    pip install 'sharegroup[worker]'
    sharegroup serve --port 9092
    sharegroup worker examples.after_a_bug:app            # with the bug: some invoices fail
    echo '{"number": 1, "cents": 100, "people": 0}' | sharegroup produce invoices
    sharegroup dlq list invoices.dead                     # what failed, and with what
    FIXED=1 sharegroup worker examples.after_a_bug:app    # the bug is gone: start it anew
    sharegroup dlq redrive invoices.dead                  # and send them back

They go back to this group alone (other groups that read the topic never see them again), with
their history.  Each carries an id, the same in each copy of one redrive: a handler that must not
do its work twice remembers it, as it would remember a payment's id.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sharegroup.worker import App, DeadLetter, Record, Retry

FIXED = bool(os.environ.get("FIXED"))
app = App("invoices")


@dataclass
class Invoice:
    """What is to be paid, in cents, by so many people."""

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
    """Everybody's share.  Invoices for nobody were not thought of.

    A plain function: it runs in a thread, so that writing to a file holds up nobody.
    """
    people = max(1, invoice.people) if FIXED else invoice.people
    share = invoice.cents // people
    with open(os.environ.get("SHARES", "shares.csv"), "a") as file:
        file.write(f"{invoice.number},{share},{record.redrive_id or ''}\n")
