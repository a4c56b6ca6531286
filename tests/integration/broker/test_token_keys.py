"""Key sets of OAUTHBEARER by HTTP: read, bounded, and never from another place than configured."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sharegroup.broker.access.token_keys import (
    KEY_SET_BYTES_MAX,
    KeySetUnreadable,
    parse_key_set,
    read_key_set,
)
from sharegroup.broker.clock import SystemClock
from sharegroup.testing import ManualClock, run_broker
from tests.integration.broker.sasl_scene import CLOSED, settings
from tests.integration.broker.test_sasl_clients import token_options, topics, valid_token
from tests.support.token_issuer import key_of, key_set


@contextmanager
def issuer(status: int, body: bytes, *, location: str = "") -> Iterator[str]:
    """Serve one answer to every request; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read(url: str) -> bytes:
    async def on_a_loop() -> bytes:
        return await asyncio.to_thread(read_key_set, SystemClock(), url)

    return asyncio.run(on_a_loop())


def test_a_key_set_is_read_by_http() -> None:
    content = key_set(key_of("first"))
    with issuer(200, content) as url:
        assert [key.key_id for key in parse_key_set(read(url))] == ["first"]


def test_an_error_page_is_no_key_set() -> None:
    with issuer(503, b"try later") as url, pytest.raises(KeySetUnreadable, match="503"):
        read(url)


def test_a_redirect_is_not_followed() -> None:
    with (
        issuer(200, key_set(key_of("first"))) as other,
        issuer(302, b"", location=other) as url,
        pytest.raises(KeySetUnreadable, match="it redirects to 'http"),
    ):
        read(url)


def test_an_endless_answer_is_cut() -> None:
    body = b" " * (KEY_SET_BYTES_MAX + 20_000)
    with issuer(200, body) as url, pytest.raises(KeySetUnreadable, match="more than 262144 bytes"):
        read(url)


def test_a_slow_answer_ends_at_the_limit(tmp_path: Path) -> None:
    """Every look at the clock passes six seconds."""

    class Hurrying(ManualClock):
        def now_ms(self) -> int:
            self.advance(6)
            return super().now_ms()

    with issuer(200, b" " * 100_000) as url, pytest.raises(KeySetUnreadable, match="10000 ms"):
        read_key_set(Hurrying(), url)


def test_a_broker_starts_while_the_issuer_is_away(tmp_path: Path) -> None:
    with issuer(200, key_set(key_of("first"))) as url:
        working = url
    key = f"listener.name.{CLOSED.lower()}.sasl.oauthbearer.jwks.endpoint"
    values = {**settings(tmp_path), f"{key}.url": working, f"{key}.retry.backoff.ms": "100"}
    with run_broker(values) as running:
        (keys,) = running.running.parts.logins.token_keys
        assert (keys.key_count, keys.failed_count > 0) == (0, True)
    with (
        issuer(200, key_set(key_of("first"))) as url,
        run_broker({**values, f"{key}.url": url}) as running,
    ):
        assert topics(token_options(running, valid_token())) == []
