"""A closed connection is freed at once, without the garbage collector."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sharegroup.broker.load.answer_budget import AnswerAccount
from sharegroup.broker.load.request_budget import RequestAccount
from sharegroup.broker.server.connection import Connection
from sharegroup.broker.server.sasl_login import SaslLogin
from sharegroup.broker.tls.transport import TlsLayer
from sharegroup.testing import run_broker
from tests.attacks.entrance import Entrance
from tests.faults.raw_connection import RawConnection
from tests.integration.broker.sasl_scene import port_of, versions, wait_until

COUNT = 5
KINDS = (Connection, RequestAccount, AnswerAccount, SaslLogin, TlsLayer)


@contextmanager
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def counted() -> Counter[type]:
    return Counter(type(found) for found in gc.get_objects() if isinstance(found, KINDS))


@pytest.mark.parametrize("is_secured", [False, True])
def test_closed_connection_is_freed_without_the_garbage_collector(
    tmp_path: Path, is_secured: bool
) -> None:
    entrance = Entrance(tmp_path) if is_secured else None
    with run_broker({} if entrance is None else entrance.settings) as running:
        port = port_of(running, "PLAINTEXT") if entrance is None else entrance.port
        login = None if entrance is None else entrance.honest

        def connect() -> None:
            with RawConnection(port, login=login) as connection:
                versions(connection)

        connect()  # What the first connection leaves behind, such as caches.
        is_quiet = lambda: not running.running.server.connection_count  # noqa: E731
        wait_until(is_quiet, waiting_for="the end of the first connection")
        with no_collections():
            before = counted()
            for _ in range(COUNT):
                connect()
            wait_until(lambda: counted() == before, waiting_for="that nothing is left")
