"""A store in the memory of this process, for tests and for programs of one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from sharegroup.worker.stores.store import (
    Confirmed,
    Held,
    Reservation,
    Reserved,
    StoreUnavailable,
    check_name,
    check_value,
)

ENTRIES_MAX = 1_000_000


class _Entry(NamedTuple):
    token: str
    value: bytes | None
    """None while the name is only reserved."""
    until: float


class MemoryStore:
    """A store in the memory of this process; it ends with the process.

    ``now`` returns seconds of a clock.  With ``entries_max`` names that have not expired, further
    names are refused.
    """

    __slots__ = ("_entries", "_entries_max", "_now", "_once")

    def __init__(
        self, *, now: Callable[[], float] = time.monotonic, entries_max: int = ENTRIES_MAX
    ) -> None:
        self._now = now
        self._entries_max = entries_max
        self._entries: dict[str, _Entry] = {}
        self._once: dict[str, asyncio.Event] = {}
        """The names of `once` blocks that have not ended, each with what its end sets."""

    async def reserve(self, name: str, token: str, *, lease_seconds: float) -> Reservation:
        """Reserve a name for a time; for the same token again, extend its lease."""
        check_name(name)
        now = self._now()
        entry = self._entry(name, now)
        if entry is None or (entry.value is None and entry.token == token):
            self._set(name, _Entry(token, None, now + lease_seconds), now)
            return Reserved()
        return Held(entry.until - now) if entry.value is None else Confirmed(entry.value)

    async def confirm(self, name: str, token: str, value: bytes, *, keep_seconds: float) -> bool:
        """Confirm a reservation for a time; False if another token has the name by now."""
        check_name(name)
        check_value(name, value)
        now = self._now()
        entry = self._entry(name, now)
        if entry is not None and entry.token != token:
            return False
        self._set(name, _Entry(token, value, now + keep_seconds), now)
        return True

    async def release(self, name: str, token: str) -> None:
        """Free a name that this token has reserved."""
        check_name(name)
        entry = self._entries.get(name)
        if entry is not None and entry.value is None and entry.token == token:
            del self._entries[name]

    async def put(self, name: str, value: bytes, *, keep_seconds: float) -> None:
        """Keep a value by its name for a time, in place of an earlier one."""
        check_name(name)
        check_value(name, value)
        now = self._now()
        self._set(name, _Entry("", value, now + keep_seconds), now)

    async def get(self, name: str) -> bytes | None:
        """Return the value that was put or confirmed; None if there is none, or no longer."""
        check_name(name)
        entry = self._entry(name, self._now())
        return None if entry is None else entry.value

    @asynccontextmanager
    async def once(self, name: str, *, keep_seconds: float) -> AsyncIterator[bool]:
        """Confirm a name unless the block raises; there is nothing else to commit in memory."""
        while (ending := self._once.get(name)) is not None:
            await ending.wait()
        ended = self._once[name] = asyncio.Event()
        try:
            is_new = await self.get(name) is None
            yield is_new
            if is_new:
                await self.put(name, b"", keep_seconds=keep_seconds)
        finally:
            del self._once[name]
            ended.set()

    async def close(self) -> None:
        """Do nothing: the names stay as long as this object."""

    def _entry(self, name: str, now: float) -> _Entry | None:
        entry = self._entries.get(name)
        return entry if entry is not None and entry.until > now else None

    def _set(self, name: str, entry: _Entry, now: float) -> None:
        entries = self._entries
        if name not in entries and len(entries) >= self._entries_max:
            self._entries = entries = {
                known: kept for known, kept in entries.items() if kept.until > now
            }
            if len(entries) >= self._entries_max:
                raise StoreUnavailable(
                    f"MemoryStore: it holds {len(entries)} names, its entries_max, and none has "
                    f"expired; keep names for a shorter time, or use another store"
                )
        entries[name] = entry
