"""Handlers that run in processes of their own: a child finds them here by their names."""

from __future__ import annotations

import asyncio
import os
import time

from sharegroup.worker import Record


def pid_of(text: str) -> None:
    """Says in which process it runs, by failing; ``crash`` ends that process, ``hang`` stays."""
    if text == "crash":
        os._exit(3)
    if text == "hang":
        time.sleep(60)
    raise LookupError(str(os.getpid()))


class Slow:
    """A handler whose process takes longer to start than a handler may run."""

    async def open(self) -> None:
        await asyncio.sleep(3)

    async def handle(self, text: str) -> None:
        if text == "hang":
            time.sleep(60)


async def decide(text: str, record: Record) -> None:
    """Decides by hand, where only a copy of the record is."""
    if text == "reject":
        record.reject(f"attempt {record.attempt} of offset {record.offset}")
    else:
        record.accept()


def look_at_lock(text: str, record: Record) -> tuple[float, float, float]:
    """Waits until its lock lives longer than it did; with ``renew`` it asks for that."""
    first, over = record.deadline, time.monotonic() + 8
    if text == "renew":
        record.renew()
    while record.deadline == first and time.monotonic() < over:
        time.sleep(0.01)
    return first, record.deadline, record.seconds_left
