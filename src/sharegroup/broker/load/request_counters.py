"""Counts what requests cost since the broker started, by API, as plain numbers for metrics.

A request's whole time is from the arrival of its complete frame until its answer is ready,
including the wait of a long poll.  Its local time is the time for which it held the event loop,
until it was decided and in slices.  The sum of the local times shows which API the broker works
for.

Times are elapsed times, because others wait for as long.  The processor time of a long hold is
only known roughly, because reading that clock for each request would cost as much as its counters.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from sharegroup.errors import KafkaError
from sharegroup.wire.codec.apis import APIS
from sharegroup.wire.codec.encoder import Chunk
from sharegroup.wire.codec.headers import RequestHeader
from sharegroup.wire.codec.schema import code_name

log = logging.getLogger(__name__)


HOLD_SECONDS = 0.05
"""A request that holds the event loop for longer, without a pause, is counted and logged."""

PROCESSOR_SAMPLE_SECONDS = 0.02
"""The shortest interval at which requests read the clock of the thread's processor time."""

HOLD_LOG_SECONDS = 10
"""One such request is logged in so many seconds; the line says how many others there were."""


class ApiCounters:
    """The requests of one API."""

    __slots__ = (
        "errors",
        "hold_count",
        "local_seconds",
        "longest_hold_seconds",
        "request_bytes",
        "response_bytes",
        "seconds",
    )

    def __init__(self) -> None:
        self.seconds = Distribution()
        """Whole times of the requests that were answered."""
        self.local_seconds = 0.0
        self.hold_count = 0
        """The number of times that a request held the event loop for longer than `HOLD_SECONDS`."""
        self.longest_hold_seconds = 0.0
        """The longest hold; 0 if there was none."""
        self.request_bytes = 0
        self.response_bytes = 0
        self.errors: dict[str, int] = {}
        """Requests that were refused as a whole, by Kafka's name of the error."""

    def answered(self, reply: Sequence[Chunk], seconds: float) -> None:
        """Count a reply that is ready, so many seconds after its request came."""
        self.response_bytes += sum(map(len, reply))
        self.seconds.observe(seconds)

    def refused(self, error: KafkaError) -> None:
        """Count a request whose only answer is this error."""
        name = code_name(type(error))
        self.errors[name] = self.errors.get(name, 0) + 1


class RequestCounters:
    """The counters of all APIs; the clocks count seconds, elapsed and of the thread's processor."""

    __slots__ = (
        "_hold_logged",
        "_holds_unlogged",
        "_processor_clock",
        "_processor_sample",
        "bad_count",
        "by_api",
        "clock",
        "sample_due",
    )

    def __init__(
        self,
        clock: Callable[[], float] | None = None,
        processor_clock: Callable[[], float] | None = None,
    ) -> None:
        # Looked up now, not when the module is imported: simulations replace them.
        self.clock = clock or time.perf_counter
        self._processor_clock = processor_clock or time.thread_time
        self._processor_sample = 0.0
        self.sample_due = float("-inf")
        """The time from which on a beginning request calls `sample`."""
        self.bad_count = 0
        """Requests that broke the protocol; their connections were closed."""
        self.by_api: dict[int, ApiCounters] = {}
        self._hold_logged = float("-inf")
        self._holds_unlogged = 0

    def sample(self, now: float) -> None:
        """Note the processor time that was used until now, for `processor_seconds_max`."""
        self._processor_sample = self._processor_clock()
        self.sample_due = now + PROCESSOR_SAMPLE_SECONDS

    def processor_seconds_max(self, seconds: float) -> float:
        """Return the most processor time that the thread can have used in the last ``seconds``."""
        return min(seconds, self._processor_clock() - self._processor_sample)

    def held(self, api_key: int, seconds: float) -> int | None:
        """Count a request that held the event loop for longer than `HOLD_SECONDS`.

        Returns the number of such requests since the last log line, including this one, if a line
        is due; otherwise None.
        """
        counters = self.of(api_key)
        counters.hold_count += 1
        counters.longest_hold_seconds = max(counters.longest_hold_seconds, seconds)
        self._holds_unlogged += 1
        now = self.clock()
        if now - self._hold_logged < HOLD_LOG_SECONDS:
            return None
        self._hold_logged = now
        unlogged, self._holds_unlogged = self._holds_unlogged, 0
        return unlogged

    def total_seconds(self) -> float:
        """Return the sum of all requests' whole times; each answered request changes it."""
        return sum(counters.seconds.total for counters in self.by_api.values())

    def of(self, api_key: int) -> ApiCounters:
        """Return the counters of an API."""
        counters = self.by_api.get(api_key)
        if counters is None:
            counters = self.by_api[api_key] = ApiCounters()
        return counters


# Counts observed values in buckets: the data of a histogram metric.
#
# The counts are plain numbers in a list, so a hot path pays one bisection and two additions for
# each value. A bucket counts the values that are at most its bound and above the bound before; the
# last bucket has no bound.


SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Bounds from a request that finds everything in memory up to a long poll."""

RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Distribution:
    """Counts observed values in buckets, and sums them up."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.total = 0.0
        """The sum of all values."""
        self._counts = [0] * (len(bounds) + 1)

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Count one more value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, without infinity, with the number of values up to that bound."""
        so_far = 0
        for bound, count in zip(self.bounds, self._counts, strict=False):
            so_far += count
            yield bound, so_far


# Counts requests that hold the event loop for long, and logs them.
#
# A log line has the time for which other requests waited, and an upper limit of the processor time
# that the broker used in it. If that is little, the process waited for a processor or for the disk,
# and the client's request was not the cause.


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
