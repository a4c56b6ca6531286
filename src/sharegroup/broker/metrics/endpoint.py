"""Answers ``GET /metrics`` for Prometheus and ``GET /share-partitions`` on a port of its own.

Only one answer of metrics is made at a time, so that many scrapers cannot take the broker's whole
time.  The answer is sent in chunks, as fast as it is read.  `share_partition_page` has the other
page, whose answers are small.

The endpoint has neither TLS nor a password.  It is open to this machine alone, unless
``sharegroup.metrics.host`` names another address or the broker runs with ``--insecure``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from sharegroup.broker.metrics.share_partition_page import (
    PATH as SHARE_PARTITIONS_PATH,
    SharePartitionPage,
)
from sharegroup.broker.metrics.values import LoopLag, Metrics
from sharegroup.broker.parts import Parts
from sharegroup.broker.server.sockets import Server
from sharegroup.http_endpoint import PROMETHEUS_TEXT, HttpEndpoint, HttpLimits, HttpResponse
from sharegroup.storage.directory.log_directory import LogDirectory

log = logging.getLogger(__name__)

PATH = "/metrics"

CONNECTIONS_MAX = 10
REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 2.0
"""Time from the connection until the request's head is complete."""

ANSWER_SECONDS_MAX = 20.0
STALL_SECONDS_MAX = 2.0
"""Maximum time without progress of a reader, while other scrapers wait for their turn."""


class MetricsEndpoint:
    """The endpoint of one broker."""

    __slots__ = ("_answering", "_endpoint", "_loop_lag", "_metrics")

    def __init__(
        self,
        parts: Parts,
        server: Server,
        directory: LogDirectory,
        *,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        self._loop_lag = LoopLag()
        self._metrics = Metrics(parts, server, directory, self._loop_lag)
        self._answering = asyncio.Lock()
        limits = HttpLimits(
            connections_max=CONNECTIONS_MAX,
            request_bytes_max=REQUEST_BYTES_MAX,
            request_seconds_max=request_seconds_max,
            answer_seconds_max=ANSWER_SECONDS_MAX,
            stall_seconds_max=STALL_SECONDS_MAX,
        )
        share_partitions = SharePartitionPage(parts)
        self._endpoint = HttpEndpoint(
            {PATH: self._page},
            limits,
            query_pages={SHARE_PARTITIONS_PATH: share_partitions.answer},
        )

    @property
    def port(self) -> int:
        """The port that was bound."""
        return self._endpoint.port

    async def listen(self, host: str, port: int) -> None:
        """Listen on the port and answer requests from now on."""
        await self._endpoint.listen(host, port)
        self._loop_lag.start()
        log.info("event=metrics_served url=http://%s:%d%s", host, self.port, PATH)

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._loop_lag.stop()
        await self._endpoint.stop()

    async def _page(self) -> HttpResponse:
        return HttpResponse(200, self._pieces, PROMETHEUS_TEXT)

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        # One answer at a time, because each holds the lines of all series in memory.
        async with self._answering:
            async for text in self._metrics.text():
                # A group id may contain characters that UTF-8 cannot encode.
                yield text.encode("utf-8", "backslashreplace")
