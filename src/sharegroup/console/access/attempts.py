"""Limits attempts to log in, per address and in total.

An attempt counts from its begin, so many at once are limited, too; one that succeeds is taken back.
IPv6 addresses count by their /64, because a single machine has all of that.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from ipaddress import ip_address, ip_network

WINDOW_SECONDS = 300.0
PER_ADDRESS_MAX = 10
TOTAL_MAX = 200
ADDRESSES_MAX = 10_000
"""Addresses that are remembered; beyond it the one that tried longest ago is forgotten."""


class Attempts:
    """The attempts of the last `WINDOW_SECONDS`."""

    __slots__ = ("_by_address", "_total")

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, deque[float]] = OrderedDict()
        self._total: deque[float] = deque()

    def begin(self, address: str, now: float) -> float:
        """Count an attempt and return 0, or the seconds to wait if there were too many."""
        key = address_key(address)
        own = self._by_address.setdefault(key, deque())
        self._by_address.move_to_end(key)
        if len(self._by_address) > ADDRESSES_MAX:
            self._by_address.popitem(last=False)
        wait = max(_wait(own, PER_ADDRESS_MAX, now), _wait(self._total, TOTAL_MAX, now))
        if wait == 0:
            own.append(now)
            self._total.append(now)
        return wait

    def take_back(self, address: str) -> None:
        """Take back the newest attempt of an address: it succeeded, or nobody could answer it."""
        own = self._by_address.get(address_key(address))
        if own:
            own.pop()
        if self._total:
            self._total.pop()


def _wait(times: deque[float], limit: int, now: float) -> float:
    """Forget what is older than the window; return the seconds until there is room."""
    while times and now - times[0] >= WINDOW_SECONDS:
        times.popleft()
    return 0.0 if len(times) < limit else WINDOW_SECONDS - (now - times[0])


def address_key(address: str) -> str:
    """Return what an address counts as; a text that is no address counts as itself."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((found, 64), strict=False))
