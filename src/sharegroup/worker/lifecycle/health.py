"""Health pages of a worker, for process supervisors and load balancers, and their endpoint.

/live     200 if the process need not be restarted; no response if its event loop hangs
/ready    200 while it takes records of all its groups; 503 if quiet, stopping or not joined yet
/status   the state of the worker as JSON
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

from sharegroup.http_endpoint import HttpEndpoint, HttpLimits, HttpResponse, Page
from sharegroup.worker.telemetry.state import Observed

OK = 200
UNAVAILABLE = 503
HANDLER_FACTS = (
    *("group", "handler", "running", "succeeded", "failed", "rejected", "released", "held"),
    *("postponed", "dead_lettered"),
)
"""The counts of a handler that ``/status`` shows."""


def pages(worker: Callable[[], Observed | None], about: Mapping[str, Any]) -> dict[str, Page]:
    """The health pages of a worker.

    ``worker`` returns None before the worker exists.  ``about`` has the first facts of ``/status``.
    """

    async def live() -> HttpResponse:
        observed = worker()
        alive = observed is None or observed.state.is_alive
        return _response(alive, observed.state.phase if observed else "starting")

    async def ready() -> HttpResponse:
        observed = worker()
        return _response(observed is not None and observed.state.is_ready, _unready(observed))

    async def status() -> HttpResponse:
        observed = worker()
        return HttpResponse.json(
            OK, {**about, **(status_of(observed) if observed else {"phase": "starting"})}
        )

    return {"/live": live, "/ready": ready, "/status": status}


def status_of(worker: Observed) -> dict[str, Any]:
    """The state of the worker, as values for JSON."""
    state = worker.state
    return {
        "phase": str(state.phase),
        "ready": state.is_ready,
        "groups": [asdict(entry) for entry in state.groups],
        "handlers": [
            {name: getattr(entry, name) for name in HANDLER_FACTS} for entry in worker.counts
        ],
    }


def _unready(worker: Observed | None) -> str:
    if worker is None:
        return "starting"
    absent = [group.group for group in worker.state.groups if not group.joined]
    joining = f"; not joined: {', '.join(absent)}" if absent else ""
    return f"{worker.state.phase}{joining}"


def _response(is_so: bool, text: str) -> HttpResponse:
    return HttpResponse(OK if is_so else UNAVAILABLE, f"{text}\n".encode())


# The HTTP endpoint for health checks and for metrics (Prometheus) has limits of its own.
#
# It runs on the worker's event loop: an endpoint in its own thread would report a process as alive
# although a handler blocks its loop. It listens on loopback by default.


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


async def open_ports(
    host: str, pages: Mapping[str, tuple[int, Mapping[str, Page]]], stack: AsyncExitStack
) -> dict[str, str]:
    """Open a port for the pages of each name, or one for several; returns the URLs by the names.

    ``stack`` closes them.
    """
    open_ports: dict[int, HttpEndpoint] = {}
    urls: dict[str, str] = {}
    for name, (port, port_pages) in pages.items():
        if port and port in open_ports:
            open_ports[port].add(port_pages)
        else:
            endpoint = open_ports[port] = new_endpoint(port_pages)
            await endpoint.listen(host, port)
            stack.push_async_callback(endpoint.stop)
        urls[name] = open_ports[port].url
    return urls
