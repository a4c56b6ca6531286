"""How much may be fetched and handed out while earlier records are unsettled.

    limit      |<------------------- in_flight_max ------------------->|
    holds      | open: handed out, not settled | waiting: in the inbox | asked for |
    hand out   |                               | up to the limit, of what waits
    fetch      |                                                       | what is left beside all

Without a window both are limited by ``max_poll_records`` alone, and the consumer asks for
everything to be settled before the next poll.  What is asked for may be exceeded by a log batch
with the acquire mode batch_optimized; what is handed out never is.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.held_records import HeldRecords
from sharegroup.client.inbox import Inbox
from sharegroup.client.share_requests import FetchLimits


class Window:
    """See the module's text."""

    __slots__ = ("_config", "_inbox", "acquire_mode", "in_flight_max", "max_wait_ms")

    def __init__(self, config: ShareConsumerConfig, inbox: Inbox) -> None:
        self._config = config
        self._inbox = inbox
        self.in_flight_max = config.in_flight_max
        """These three may change while it runs; None: no limit."""
        self.acquire_mode = config.share_acquire_mode
        self.max_wait_ms = config.fetch_max_wait_ms

    def to_hand_out(self, wanted: int, tables: Iterable[HeldRecords]) -> int:
        """How many of ``wanted`` records may be handed out now."""
        config = self._config
        if not config.has_window:
            return wanted
        held = tuple(tables)
        room = wanted
        if self.in_flight_max is not None:
            room = min(room, self.in_flight_max - sum(one.open_count for one in held))
        if config.in_flight_bytes is not None:
            left = config.in_flight_bytes - sum(one.open_bytes for one in held)
            # A record that is larger than the window goes alone.
            weight = max(self._inbox.next_record_bytes, 1.0)
            room = min(room, 0 if left <= 0 else max(1, int(left / weight)))
        return max(room, 0)

    def to_fetch(
        self, wanted: int, tables: Iterable[HeldRecords], asked: int, max_wait_ms: int
    ) -> FetchLimits | None:
        """The next fetch's limits, beside ``asked`` records under way; None when full."""
        config = self._config
        room, room_bytes = wanted, config.fetch_max_bytes
        if config.has_window:
            held = tuple(tables)
            if self.in_flight_max is not None:
                used = sum(one.open_count for one in held) + self._inbox.waiting + asked
                room = min(room, self.in_flight_max - used)
            if config.in_flight_bytes is not None:
                weight = sum(one.open_bytes for one in held) + self._inbox.waiting_bytes
                room_bytes = min(room_bytes, int(config.in_flight_bytes - weight))
            if room <= 0 or room_bytes <= 0:
                return None
        return FetchLimits(
            max_records=room,
            max_bytes=room_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=min(config.fetch_min_bytes, room_bytes),
            acquire_mode=self.acquire_mode,
        )
