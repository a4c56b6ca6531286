"""Limits log lines that strangers cause: one for an address and second, and some for all."""

from __future__ import annotations

from collections import OrderedDict

ADDRESS_PAUSE_MS = 1_000
"""Time after a line about an address in which no other line is about it."""

ADDRESSES_MAX = 1_000
"""Number of addresses whose last line is remembered."""

LINES_MAX = 20
"""Number of lines about all addresses in `ADDRESS_PAUSE_MS`."""


class LinesByAddress:
    """The times of the last log lines of one kind by address."""

    __slots__ = ("_addresses", "_lines", "_lines_began_ms", "_unlogged")

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, int] = OrderedDict()
        self._lines = 0
        self._lines_began_ms = 0
        self._unlogged = 0

    def unlogged(self, host: str, now_ms: int) -> int | None:
        """Return how many lines were not logged since the last one, if one may be logged now.

        None means that it may not; it is then counted as not logged.
        """
        if not self._may_log(host, now_ms):
            self._unlogged += 1
            return None
        count, self._unlogged = self._unlogged, 0
        return count

    def _may_log(self, host: str, now_ms: int) -> bool:
        """Return whether a line about this address may be logged now, and count it."""
        last_ms = self._addresses.get(host)
        if last_ms is not None and now_ms - last_ms < ADDRESS_PAUSE_MS:
            return False
        if now_ms - self._lines_began_ms >= ADDRESS_PAUSE_MS:
            self._lines, self._lines_began_ms = 0, now_ms
        if self._lines >= LINES_MAX:
            return False
        self._lines += 1
        self._addresses[host] = now_ms
        self._addresses.move_to_end(host)
        if len(self._addresses) > ADDRESSES_MAX:
            self._addresses.popitem(last=False)
        return True
