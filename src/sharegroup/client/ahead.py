"""Whether it helps to fetch from a broker before the application asks for more.

A fetch that brought as much as was asked for says that there is more.  Then the next one may go
out while the application works.  But a partition has a number of locks, and when those in the
application's hands are all of them, fetching ahead finds nothing, though the log has more:

    fetch: full ---> ahead: nothing ---> fetch: full      the locks are used up: pause
                                    '--> fetch: less      that was the end of the log
"""

from __future__ import annotations

from sharegroup.client.share_requests import FetchLimits

FUTILE_PAUSE = 64
"""After a fetch ahead in vain, so many fetches go by before the next attempt."""


class AheadOf:
    """See the module's text; brokers by node id."""

    __slots__ = ("_full", "_pauses")

    def __init__(self) -> None:
        self._full: set[int] = set()
        self._pauses: dict[int, int] = {}

    def may_help(self, node_id: int) -> bool:
        """Whether this broker had more the last time, and locks to spare."""
        return node_id in self._full and not self._pauses.get(node_id)

    def fetched(self, node_id: int, records: int, limits: FetchLimits) -> None:
        """A fetch with these limits brought so many records."""
        if records >= limits.max_records:
            self._full.add(node_id)
            self._pauses[node_id] = max(self._pauses.get(node_id, 0) - 1, 0)
        elif not records and not limits.max_wait_ms:
            self._full.discard(node_id)
            self._pauses[node_id] = FUTILE_PAUSE
        else:
            self._full.discard(node_id)
            self._pauses.pop(node_id, None)
