"""The credentials in a registry's address are sent, and are in no log, error or representation."""

from __future__ import annotations

import base64
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sharegroup.worker import Registry


def test_password_in_the_address_is_used_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[str | None] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers["Authorization"])
            self.send_error(401)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Refusing) as server, caplog.at_level(logging.DEBUG):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://app:hunter2@127.0.0.1:{server.server_port}"
        registry = Registry(address, "json", options={"max.retries": 0})
        _, write, close = registry.functions_for(dict)
        with pytest.raises(Exception, match="401") as refused:
            write({"a": 1}, "orders")
        close()
        server.shutdown()
    assert sent[0] == "Basic " + base64.b64encode(b"app:hunter2").decode()
    assert "hunter2" not in caplog.text + repr(registry) + repr(refused.value)
