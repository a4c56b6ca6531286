"""What requests cost since the broker started, by API: plain numbers, for metrics.

A request's whole time is from its frame being complete to its answer being ready, a long poll's
wait included.  Its local time is what it kept the event loop's thread for until it was decided;
the sum of these says which API the broker works for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from sharegroup.broker.distribution import Distribution
from sharegroup.errors import KafkaError
from sharegroup.wire.encoder import Chunk


class ApiCounters:
    """The requests of one API."""

    __slots__ = ("errors", "local_seconds", "request_bytes", "response_bytes", "seconds")

    def __init__(self) -> None:
        self.seconds = Distribution()
        """Whole times of the requests that were answered."""
        self.local_seconds = 0.0
        self.request_bytes = 0
        self.response_bytes = 0
        self.errors: dict[str, int] = {}
        """Requests that were refused as a whole, by the error's name in Kafka."""

    def answered(self, reply: Sequence[Chunk], seconds: float) -> None:
        """The reply to a request is ready, so long after the request came."""
        self.response_bytes += sum(map(len, reply))
        self.seconds.observe(seconds)

    def refused(self, error: KafkaError) -> None:
        """A request is answered with this error and nothing else."""
        name = ErrorCode(error.code).name.upper()
        self.errors[name] = self.errors.get(name, 0) + 1


class RequestCounters:
    """All APIs; ``clock`` counts seconds, only to compare them."""

    __slots__ = ("bad_count", "by_api", "clock")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.bad_count = 0
        """Requests that broke the protocol; their connections were closed."""
        self.by_api: dict[int, ApiCounters] = {}

    def of(self, api_key: int) -> ApiCounters:
        """The counters of an API that is served."""
        found = self.by_api.get(api_key)
        if found is None:
            found = self.by_api[api_key] = ApiCounters()
        return found
