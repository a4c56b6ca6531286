"""Counts requests that hold the event loop for long, and logs them.

A log line has the time for which other requests waited, and an upper limit of the processor time
that the broker used in it.  If that is little, the process waited for a processor or for the disk,
and the client's request was not the cause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sharegroup.broker.load.request_counters import HOLD_SECONDS, RequestCounters
from sharegroup.wire.codec.apis import APIS
from sharegroup.wire.codec.headers import RequestHeader

log = logging.getLogger(__name__)

BY_REQUEST = "check why this client sends such requests; report a bug if the requests are ordinary"
BY_MACHINE = (
    "the broker waited for a processor or the disk: check the other processes and the "
    "latency of the disk"
)

CLIENT_ID_CHARACTERS_MAX = 250
"""Number of characters of a client id in a log line."""


class RequestOrigin:
    """The origin of a request; called with the seconds of each slice of the work on it."""

    __slots__ = ("_header", "_peer_host", "_requests", "_worked")

    def __init__(
        self,
        requests: RequestCounters,
        header: RequestHeader,
        peer_host: str,
        worked: Callable[[float], None] | None = None,
    ) -> None:
        self._requests = requests
        self._worked = worked  # None if no client has a quota.
        self._header = header
        self._peer_host = peer_host

    def __call__(self, seconds: float) -> None:
        """Count a slice of the work on the request, which held the event loop for ``seconds``."""
        requests = self._requests
        requests.of(self._header.api_key).local_seconds += seconds
        if self._worked is not None:
            self._worked(seconds)
        if seconds > HOLD_SECONDS:
            note_hold(requests, self._header, self._peer_host, seconds)
        now = requests.clock()
        if now >= requests.sample_due:
            requests.sample(now)


def note_hold(
    requests: RequestCounters, header: RequestHeader, peer_host: str, seconds: float
) -> None:
    """Count a request that held the event loop for ``seconds``; log it if a log line is due."""
    count = requests.held(header.api_key, seconds)
    if count is None:
        return
    worked = requests.processor_seconds_max(seconds)
    log.warning(
        "event=event_loop_held api=%s version=%d ms=%d processor_ms_max=%d client=%r peer=%s "
        "count=%d action=%r",
        APIS[header.api_key].snake_name,
        header.api_version,
        seconds * 1000,
        worked * 1000,
        (header.client_id or "")[:CLIENT_ID_CHARACTERS_MAX],
        peer_host,
        count,
        BY_REQUEST if worked > seconds / 2 else BY_MACHINE,
    )
