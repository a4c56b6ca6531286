"""The HTTP endpoint for health checks and for metrics (Prometheus), with its limits.

It runs on the worker's event loop: an endpoint in its own thread would report a process as alive
although a handler blocks its loop.  It listens on loopback by default.
"""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.http_endpoint import HttpEndpoint, HttpLimits, Page

CONNECTIONS_MAX = 32
REQUEST_BYTES_MAX = 16 * 1024
REQUEST_SECONDS_MAX = 2.0
"""Maximum time from the connection to the end of the request."""

EXCHANGE_SECONDS_MAX = 10.0
"""Maximum time from the connection to the end of the response."""


def new_endpoint(
    pages: Mapping[str, Page], *, request_seconds_max: float = REQUEST_SECONDS_MAX
) -> HttpEndpoint:
    """Return an endpoint with these pages and a worker's limits; it does not listen yet."""
    answer_seconds_max = EXCHANGE_SECONDS_MAX - REQUEST_SECONDS_MAX
    limits = HttpLimits(
        connections_max=CONNECTIONS_MAX,
        request_bytes_max=REQUEST_BYTES_MAX,
        request_seconds_max=request_seconds_max,
        answer_seconds_max=answer_seconds_max,
        stall_seconds_max=answer_seconds_max,
    )
    return HttpEndpoint(pages, limits)
