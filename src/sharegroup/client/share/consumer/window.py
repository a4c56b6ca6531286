"""The window: limits fetching and handing out while earlier records are unsettled.

    limit      |<------------------- in_flight_max ------------------->|
    holds      | open: handed out, not settled | waiting: in the inbox | asked for |
    hand out   |                               | of the waiting, up to the limit
    fetch      |                                                       | the rest

Without a window only ``max_poll_records`` limits both, and the consumer requires that all records
are settled before the next poll.  With the acquire mode batch_optimized a fetch may bring up to a
log batch more than the limit; never more than the limit is handed out.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.inbox import Inbox
from sharegroup.client.share.session.share_requests import FetchLimits
from sharegroup.protocol_enums import AcquireMode


class Window:
    """Computes how many records may be handed out and fetched now."""

    __slots__ = (
        "_config",
        "_inbox",
        "acquire_mode",
        "completes_batch",
        "in_flight_max",
        "max_wait_ms",
    )

    def __init__(self, config: ShareConsumerConfig, inbox: Inbox) -> None:
        self._config = config
        self._inbox = inbox
        self.in_flight_max = config.in_flight_max
        """The limit of records; None: no limit.  `FlowControl` changes this and the next two."""
        self.acquire_mode = config.share_acquire_mode
        self.max_wait_ms = config.fetch_max_wait_ms
        self.completes_batch = False
        """Whether the next fetch may acquire a whole log batch in every acquire mode."""

    def to_hand_out(self, wanted: int, tables: Iterable[HeldRecords]) -> int:
        """Return how many of ``wanted`` records may be handed out now."""
        config = self._config
        if not config.has_window:
            return wanted
        held_tables = tuple(tables)
        room = wanted
        if self.in_flight_max is not None:
            room = min(room, self.in_flight_max - sum(table.open_count for table in held_tables))
        if config.in_flight_bytes is not None:
            remaining_bytes = config.in_flight_bytes - sum(
                table.open_bytes for table in held_tables
            )
            # A record that is larger than the window is handed out alone.
            record_bytes = max(self._inbox.next_record_bytes, 1.0)
            room = min(
                room, 0 if remaining_bytes <= 0 else max(1, int(remaining_bytes / record_bytes))
            )
        return max(room, 0)

    def to_fetch(
        self, wanted: int, tables: Iterable[HeldRecords], asked: int, max_wait_ms: int
    ) -> FetchLimits | None:
        """Return the limits of the next fetch, or None when the window is full.

        ``asked`` is the number of records that fetches under way ask for.
        """
        config = self._config
        room, room_bytes = wanted, config.fetch_max_bytes
        if config.has_window:
            held_tables = tuple(tables)
            if self.in_flight_max is not None:
                used_records = (
                    sum(table.open_count for table in held_tables) + self._inbox.waiting + asked
                )
                room = min(room, self.in_flight_max - used_records)
            if config.in_flight_bytes is not None:
                used_bytes = (
                    sum(table.open_bytes for table in held_tables) + self._inbox.waiting_bytes
                )
                room_bytes = min(room_bytes, int(config.in_flight_bytes - used_bytes))
            if room <= 0 or room_bytes <= 0:
                return None
        acquire_mode, self.completes_batch = self._next_acquire_mode(), False
        return FetchLimits(
            max_records=room,
            max_bytes=room_bytes,
            max_wait_ms=max_wait_ms,
            # A minimum above `max_bytes` could make every fetch wait for its whole time.
            min_bytes=min(config.fetch_min_bytes, room_bytes),
            acquire_mode=acquire_mode,
        )

    def _next_acquire_mode(self) -> AcquireMode:
        return AcquireMode.BATCH_OPTIMIZED if self.completes_batch else self.acquire_mode


# Fetching ahead from a broker, before the application polls again.
#
# After a fetch that brought all requested records, the log probably has more. Then the next fetch
# may be sent while the application works. But a share partition has a limited number of locks. If
# the application holds all of them, fetching ahead finds nothing although the log has more:
#
#     fetch: full ---> ahead: nothing ---> fetch: full      all locks are in use: pause
#                                     '--> fetch: less      the end of the log was reached


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
