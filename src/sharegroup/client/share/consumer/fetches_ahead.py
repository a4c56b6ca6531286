"""Decides whether to fetch ahead from a broker, before the application polls again.

After a fetch that brought all requested records, the log probably has more.  Then the next fetch
may be sent while the application works.  But a share partition has a limited number of locks.
If the application holds all of them, fetching ahead finds nothing although the log has more:

    fetch: full ---> ahead: nothing ---> fetch: full      all locks are in use: pause
                                    '--> fetch: less      the end of the log was reached
"""

from __future__ import annotations

from sharegroup.client.share.session.share_requests import FetchLimits

FUTILE_PAUSE = 64
"""Number of full fetches from a broker before the next fetch ahead, after a futile one."""


class AheadOf:
    """Remembers for each broker, by node id, whether fetching ahead may find records."""

    __slots__ = ("_full", "_pauses")

    def __init__(self) -> None:
        self._full: set[int] = set()
        self._pauses: dict[int, int] = {}

    def may_help(self, node_id: int) -> bool:
        """Whether this broker probably has more records and free locks."""
        return node_id in self._full and not self._pauses.get(node_id)

    def fetched(self, node_id: int, records: int, limits: FetchLimits) -> None:
        """Note the number of records that a fetch with these limits brought."""
        if records >= limits.max_records:
            self._full.add(node_id)
            self._pauses[node_id] = max(self._pauses.get(node_id, 0) - 1, 0)
        # A fetch ahead, which does not wait.  One that waited has reached the end of the log.
        elif not records and not limits.max_wait_ms:
            self._full.discard(node_id)
            self._pauses[node_id] = FUTILE_PAUSE
        else:
            self._full.discard(node_id)
            self._pauses.pop(node_id, None)
