"""The HTTP server of the registry, on threads of its own, and its context managers.

    with run_schema_registry() as registry:             # in synchronous code
        ... SchemaRegistryClient({"url": registry.url}) ...

    async with schema_registry() as registry:           # in a coroutine
        ... AsyncSchemaRegistryClient({"url": registry.url}) ...

The server never runs on the caller's event loop.  Most serializers are synchronous: one that is
called in a coroutine blocks the loop until the registry has answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from sharegroup.http_hosts import HttpHosts
from sharegroup.testing.registry.errors import (
    ForeignRequest,
    InvalidRequest,
    PathNotFound,
    RegistryError,
    RequestTooLarge,
)
from sharegroup.testing.registry.routes import Answer, Routes, refusal
from sharegroup.testing.registry.schema_types import Compatibility
from sharegroup.testing.registry.store import RegistryLimits, Store

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
STOP_SECONDS_MAX = 10.0
DIGITS_MAX = 18
"""Number of digits of a Content-Length."""

POLL_SECONDS = 0.05
"""Interval at which the server looks whether it is to stop."""


class SchemaRegistry:
    """A schema registry that runs while its context manager is open."""

    __slots__ = ("_routes", "url")

    def __init__(self, url: str, routes: Routes) -> None:
        self.url = url
        """The address of the registry, for the option ``schema.registry.url`` of clients."""
        self._routes = routes

    def __repr__(self) -> str:
        return f"SchemaRegistry(url={self.url!r})"

    def register(
        self,
        subject: str,
        schema: str | Mapping[str, Any] | Sequence[Any],
        *,
        schema_type: str = "AVRO",
        references: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Register a schema, a text or JSON, under a subject; returns its id.

        ``references`` are objects with ``name``, ``subject`` and ``version``. Raises an error of
        `sharegroup.testing.registry.errors` if the registry refuses the schema.

        >>> with run_schema_registry() as registry:
        ...     registry.register("orders-value", {"type": "string"})
        1
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": schema_type, "references": list(references)}
        answer = self._ask("POST", ("subjects", subject, "versions"), body)
        return int(answer["id"])

    def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        return list(self._ask("GET", ("subjects",)))

    def schemas(self, subject: str) -> list[str]:
        """Return the texts of all versions of a subject, the oldest first."""
        path = ("subjects", subject, "versions")
        numbers = self._ask("GET", path)
        return [self._ask("GET", (*path, str(number)))["schema"] for number in numbers]

    def set_compatibility(self, level: str, *, subject: str | None = None) -> None:
        """Set the compatibility level of a subject, or of all that have none of their own."""
        path = ("config",) if subject is None else ("config", subject)
        self._ask("PUT", path, {"compatibility": level})

    def _ask(self, method: str, path: Sequence[str], body: Any = None) -> Any:
        return self._routes.ask(method, path, {}, json.dumps(body).encode())


@contextmanager
def run_schema_registry(
    *, compatibility: str = "BACKWARD", port: int = 0, limits: RegistryLimits | None = None
) -> Iterator[SchemaRegistry]:
    """Run a schema registry while the context is open; it begins without any schema.

    ``compatibility`` is the level of subjects that have none of their own.  Schemas need libraries
    of the extra ``registry``; a schema whose library is missing is refused.

    >>> with run_schema_registry(compatibility="NONE") as registry:
    ...     registry.url.startswith("http://127.0.0.1:")
    True
    """
    bounds = limits or RegistryLimits()
    routes = Routes(Store(Compatibility.of(compatibility), bounds))
    server = _Server(port, routes, bounds)
    thread = threading.Thread(
        target=server.serve_forever, args=(POLL_SECONDS,), name="sharegroup-registry", daemon=True
    )
    thread.start()
    try:
        yield SchemaRegistry(f"http://127.0.0.1:{server.server_port}", routes)
    finally:
        server.shutdown()
        server.close_all()
        thread.join(STOP_SECONDS_MAX)
        assert not thread.is_alive(), f"the registry did not stop within {STOP_SECONDS_MAX} s"


@asynccontextmanager
async def schema_registry(
    *, compatibility: str = "BACKWARD", port: int = 0, limits: RegistryLimits | None = None
) -> AsyncIterator[SchemaRegistry]:
    """Run a schema registry while the context is open, as `run_schema_registry` does.

    >>> import asyncio
    >>> async def subjects() -> list[str]:
    ...     async with schema_registry() as registry:
    ...         return registry.subjects()
    >>> asyncio.run(subjects())
    []
    """
    context = run_schema_registry(compatibility=compatibility, port=port, limits=limits)
    # It only opens a socket.  In another thread it would go on if this task was cancelled here.
    registry = context.__enter__()
    try:
        yield registry
    finally:
        # The server ends in its thread even if this task is cancelled here.
        await asyncio.shield(asyncio.to_thread(context.__exit__, None, None, None))


class _Server(ThreadingHTTPServer):
    """An HTTP server with a limited number of connections, which it closes at its end."""

    daemon_threads = False  # So that closing waits for the threads of connections.
    block_on_close = True

    def __init__(self, port: int, routes: Routes, limits: RegistryLimits) -> None:
        self.routes = routes
        self.limits = limits
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        try:
            super().__init__(("127.0.0.1", port), _Connection)
        except OSError as error:
            raise type(error)(
                error.errno, f"can't listen on 127.0.0.1:{port} for the schema registry: {error}"
            ) from error
        self.hosts = HttpHosts.of("127.0.0.1", ["127.0.0.1"], os.environ)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Accept a connection unless there are too many."""
        with self._lock:
            if len(self._open) >= self.limits.connections_max:
                log.warning(
                    "event=registry_connection_refused connections_max=%d action=%s",
                    self.limits.connections_max,
                    "close clients that are not used, or raise the limit",
                )
                return False
            self._open.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            # `discard`, because a connection that was refused is closed here as well.
            self._open.discard(request)
        super().shutdown_request(request)

    def close_all(self) -> None:
        """Close the port and all connections, and wait for their threads."""
        with self._lock:
            for connection in self._open:
                try:
                    # Wakes the thread that waits for a request, which `server_close` joins.
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # The client was faster.
                    continue
        self.server_close()


class _Connection(BaseHTTPRequestHandler):
    """Serves the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "sharegroup-registry"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        """Set the maximum time of a silent client."""
        super().setup()
        self.connection.settimeout(self.server.limits.idle_seconds_max)

    def handle(self) -> None:
        """Serve requests until the connection ends."""
        try:
            super().handle()
        except OSError as error:
            log.debug("event=registry_connection_lost error=%r", error)

    def do_GET(self) -> None:
        """Answer a request."""
        try:
            self._check_headers()
            # Read before the route is known: what is left of a body would be taken for the next
            # request.
            body = self._body()
            url = self._url()
        except RegistryError as error:
            self.close_connection = True  # The body was not read.
            self._send(refusal(error))
            return
        path = [unquote(part) for part in url.path.split("/") if part]
        try:
            answer = self.server.routes.answer(self.command, path, dict(parse_qsl(url.query)), body)
        except (
            Exception
        ) as error:  # A bug; the client gets its name instead of a closed connection.
            log.exception("event=registry_request_failed method=%s path=%s", self.command, url.path)
            message = f"{type(error).__name__}: {error}"
            answer = Answer(500, {"error_code": 500, "message": message})
        self._send(answer)

    do_DELETE = do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815  The names are http.server's.

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  The name of the base class.
        """Log a request for debugging only."""
        log.debug("event=registry_request text=%r", format % args)

    def _check_headers(self) -> None:
        """Raise the error of a request that a web page of another origin may have sent."""
        reason = self.server.hosts.refusal(
            self.headers.get_all("Host", []),
            self.headers.get_all("Origin", []),
            changes=self.command not in ("GET", "HEAD"),
        )
        if reason is not None:
            raise ForeignRequest(reason)

    def _url(self) -> SplitResult:
        try:
            return urlsplit(self.path)
        except ValueError as error:
            raise PathNotFound(f"the target {self.path[:80]!r} is not a URL: {error}") from error

    def _body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length", ["0"])
        if "Transfer-Encoding" in self.headers or not _is_number(lengths):
            raise InvalidRequest("expected one header Content-Length with the size of the body")
        bytes_max = self.server.limits.request_bytes_max
        if int(lengths[0]) > bytes_max:
            raise RequestTooLarge(
                f"the body has {lengths[0]} bytes; expected at most request_bytes_max={bytes_max}"
            )
        return self.rfile.read(int(lengths[0]))

    def _send(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        encoded = body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(encoded)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(encoded)


def _is_number(lengths: Sequence[str]) -> bool:
    """Return whether this is one number of bytes; Python refuses to convert thousands of digits."""
    (length, *others) = lengths
    return not others and length.isascii() and length.isdecimal() and len(length) <= DIGITS_MAX
