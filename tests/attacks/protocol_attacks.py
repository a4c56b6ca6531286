"""Attacks by single requests that reach code with no guard, by names, and by half HTTP requests."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta

from kio.schema.create_topics.v4 import request as create_topics

from sharegroup.wire.codec.apis import request_class
from tests.attacks.target import Target, join_request

EVIL = "member\x1b[31m\x07\nevent=forged user=root"
EXPIRED_SECONDS = 2.5
HALF_HTTP = 64
HTTP_SECONDS_MAX = 4.0


def coordinators_of_nothing(target: Target) -> Iterator[None]:
    """FindCoordinator without a key, in every version that takes a list."""
    for version in (4, 5, 6):
        with target.connect() as connection:
            try:
                connection.ask(request_class(10, version)(key_type=0, coordinator_keys=()))
            except ConnectionResetError:
                target.found.append(f"FindCoordinator {version} with no key: connection closed")
    yield


def long_error_text(target: Target) -> Iterator[None]:
    """A topic whose name of 32,767 characters is repeated in the text of the error.

    In version 4 a string has a length of two bytes.
    """
    for name in ("n" * 32_767, "\N{SNOWMAN}" * 10_900):
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        request = create_topics.CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=5))
        with target.connect() as connection:
            try:
                connection.ask(request)
            except ConnectionResetError:
                target.found.append("CreateTopics with a long name: the connection was closed")
    yield


def names_with_control_characters(target: Target) -> Iterator[None]:
    """Group, member and topic names with ESC, BEL and a newline in them.

    One member stays away, so that its session times out (after 1 s here).
    """
    with target.connect() as connection:
        connection.ask(join_request("group", EVIL, [EVIL]))
        connection.ask(join_request(EVIL, EVIL, [EVIL]))
        connection.ask(join_request(EVIL, EVIL, [], epoch=-1))
    time.sleep(EXPIRED_SECONDS)
    yield


def half_http(target: Target) -> Iterator[None]:
    """64 connections to the metrics port send half a request and stop."""
    with ExitStack() as stack:
        for _ in range(HALF_HTTP):
            with suppress(OSError):
                peer = socket.create_connection(("127.0.0.1", target.metrics_port), timeout=5)
                stack.enter_context(peer)
                peer.sendall(b"GET /metr")
        yield


def scrape_is_answered(target: Target) -> list[str]:
    """An honest scrape, tried as a scraper does, gets its answer within seconds."""
    limit = time.monotonic() + HTTP_SECONDS_MAX
    while time.monotonic() < limit:
        with suppress(OSError):
            address = ("127.0.0.1", target.metrics_port)
            with socket.create_connection(address, timeout=1.0) as peer:
                peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if peer.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                    return []
    return [f"an honest scrape of /metrics is not answered in {HTTP_SECONDS_MAX} s"]
