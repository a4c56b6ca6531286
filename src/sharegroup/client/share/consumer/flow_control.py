"""Changes at run time how many records a share consumer takes, for the worker.

A worker knows how many handlers are free and when it is about to stop; settings cannot say that.

    resize          the window follows the speed of the handlers
    keep            an unreadable range is settled after its dead letter is durable
    quiet           no more records are taken; the member keeps its locks, without an assignment
    take_waiting    records fetched ahead are handed out at once
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from sharegroup.client.settings.consumer_config import AcquireModeName
from sharegroup.client.share.consumer.record import DeserializationError, Record, UnreadableDelivery
from sharegroup.client.share.consumer.share_consumer import ShareConsumer
from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.protocol_enums import AcquireMode

log = logging.getLogger(__name__)


class FlowControl:
    """Resizes the window of a running share consumer, and pauses it; for explicit mode only."""

    __slots__ = ("_member",)

    def __init__(self, consumer: ShareConsumer) -> None:
        self._member = consumer._member

    @property
    def failure(self) -> KafkaError | None:
        """The error because of which this member can never poll again, or None."""
        return self._member.group.heartbeats.failure

    @property
    def is_joined(self) -> bool:
        """Whether this is a member of the group, as far as the coordinator answers."""
        return self._member.group.is_joined

    @property
    def renews(self) -> bool:
        """Whether locks are renewed; turned off when the broker or the group does not allow it."""
        return self._member.renews

    def resize(
        self, in_flight_max: int, *, acquire_mode: AcquireModeName, max_wait_ms: int
    ) -> None:
        """Set the window, the acquire mode and how long a fetch may wait for records."""
        window = self._member.window
        window.in_flight_max = in_flight_max
        window.acquire_mode = AcquireMode(acquire_mode)
        window.max_wait_ms = max_wait_ms

    def keep(self, error: UnreadableDelivery) -> None:
        """Keep unreadable offsets over further polls, until they are settled or their lock ends.

        The next fetch acquires the rest of their batch as one range, also above the limit of
        records, because a range of each few offsets is of no use.
        """
        lock = error._lock
        lock.held.keep_reported(lock, error.first, error.end)
        self._member.window.completes_batch = True

    def flush(self) -> None:
        """Send outstanding acknowledgements without waiting, and without asking for results."""
        # Not `pending_results`: each call of it makes a request of its own, and a worker flushes
        # often while a fetch is parked.
        self._member.flush()

    async def acknowledged(self, within_seconds: float) -> None:
        """Send outstanding acknowledgements, and wait for their results at most this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                for pending in self._member.pending_results():
                    await pending.done.wait()

    def quiet(self, *, release_below: int) -> None:
        """Take no more records, and release those that were fetched ahead.

        Records with a delivery count of ``release_below`` or more are kept, because a further
        delivery may be their last; `take_waiting` and `poll` still hand them out.
        """
        member = self._member
        member.group.membership.quiet = True
        member.stop_fetching()
        member.release_below = release_below
        member.group.heartbeats.wake()
        member.release_waiting()

    async def fetches_ended(self, within_seconds: float) -> None:
        """Wait until no fetch is under way, at most this long; `take_waiting` has its records."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self._member.fetches_ended()

    def take_waiting(self) -> list[Record]:
        """Hand out the records that were fetched ahead.

        What cannot be read among them is released, at the latest by the next `poll` or by `close`.
        """
        inbox = self._member.inbox
        taken: list[Record] = []
        while len(inbox):
            try:
                # At least 1, because a parcel of gaps alone has to go, too.
                taken += inbox.take(inbox.waiting or 1, now=time.monotonic())
            except (UnreadableDelivery, CorruptMessage, DeserializationError) as error:
                # Not raised: the records taken before it would be lost to the caller.
                log.info(
                    "event=take.unreadable error=%s action='released, so it is delivered again'",
                    error,
                )
        return taken

    def resume(self) -> None:
        """Take records again, after `quiet`."""
        self._member.group.membership.quiet = False
        self._member.group.heartbeats.wake()
