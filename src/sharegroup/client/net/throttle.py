"""The pause of a connection whose client is over a quota of the broker (KIP-219).

A broker answers at once and says for how long the client must send nothing more; it reads nothing
from the connection for that time either.  Requests wait here in the order in which they came.
"""

from __future__ import annotations

import asyncio
import logging

from sharegroup.errors import RequestTimedOut

log = logging.getLogger(__name__)

THROTTLE_SECONDS_MAX = 3_600.0
"""A longer throttle time is ignored, because it is no honest one: nobody waits for days."""

LOG_SECONDS = 60.0
"""At most one throttle time in so many seconds is logged for each connection."""


class Throttle:
    """The throttle time of one connection; without one, nothing waits."""

    __slots__ = ("_is_over", "_logged_at", "_peer", "_timer", "_turn", "_until", "_waiting")

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = asyncio.Event()
        self._is_over.set()
        self._turn = asyncio.Lock()  # The event alone does not keep the order of the requests.
        self._waiting = 0
        self._logged_at = -LOG_SECONDS

    def begin(self, seconds: float) -> None:
        """Send nothing for so many seconds; an earlier pause that is longer goes on."""
        if not 0 < seconds <= THROTTLE_SECONDS_MAX:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        # Pipelined requests are answered one after the other, each with the pause as it was then.
        if now + seconds <= self._until:
            return
        self._until = now + seconds
        self._is_over.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self.end)
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.info(
                "event=throttled broker=%s ms=%d reason=%r",
                self._peer,
                seconds * 1000,
                "this client is over a quota of the broker",
            )

    def end(self) -> None:
        """End the pause, because its time is over or the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._until = 0.0
        self._is_over.set()

    async def over(self, limit_seconds: float) -> None:
        """Wait until requests may be sent; raise RequestTimedOut if that takes too long."""
        # Requests may still wait for their turn after the end of the pause; none may overtake
        # them.
        if self._is_over.is_set() and not self._waiting:
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(limit_seconds), self._turn:
                await self._is_over.wait()
        except TimeoutError:
            raise RequestTimedOut(
                f"broker {self._peer}: this client is over a quota and may send nothing for longer "
                f"than the {limit_seconds:g} s that this request may take. Send less, or ask an "
                "administrator for a larger quota"
            ) from None
        finally:
            self._waiting -= 1
