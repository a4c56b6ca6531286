"""A process that sends one record with a unique name, and dies at a step if it is told to.

    python -m tests.integration.worker.stores.sender_process SERVERS FILE STEP

STEP is ``reserved``, ``written`` or ``never``.  It prints ``new`` or ``before``.  The lease is one
second, so that the test need not wait for half a minute.
"""

from __future__ import annotations

import asyncio
import os
import sys

from sharegroup.worker import App, SentBefore, SqliteStore
from sharegroup.worker.stores.store import Reservation, Reserved

LEASE_SECONDS = 1.0
DIED = 9


class ShortLease(SqliteStore):
    """A store with short leases, in which the process ends at a step."""

    dies_at = "never"

    async def reserve(self, name: str, token: str, *, lease_seconds: float) -> Reservation:
        found = await super().reserve(name, token, lease_seconds=LEASE_SECONDS)
        if found == Reserved() and self.dies_at == "reserved":
            os._exit(DIED)
        return found

    async def confirm(self, name: str, token: str, value: bytes, *, keep_seconds: float) -> bool:
        if self.dies_at == "written":
            os._exit(DIED)
        return await super().confirm(name, token, value, keep_seconds=keep_seconds)


async def main(servers: str, file: str, step: str) -> None:
    store = ShortLease(file)
    store.dies_at = step
    app = App("orders-service", bootstrap_servers=servers, store=store)

    @app.share_group("billing", topics="orders")
    async def bill(order: dict) -> None: ...

    async with app.client():
        found = await bill.send({"id": 42}, unique="invoice-42", for_="1h")
    print("before" if isinstance(found, SentBefore) else "new")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
