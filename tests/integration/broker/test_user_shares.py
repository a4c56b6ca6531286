"""What one user may take of what all users share: connections, memory, and its quotas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_client_quotas.v1 import request as alter
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest

from sharegroup.ids import TopicName
from sharegroup.testing import TestBroker, run_broker
from sharegroup.wire.codec.encoder import encode_request
from tests.attacks.batches import honest_batch
from tests.attacks.target import frame, produce_request, produced
from tests.faults.raw_connection import RawConnection
from tests.integration.broker.sasl_scene import (
    OPEN,
    handshake,
    log_in,
    plain,
    port_of,
    settings,
    versions,
    wait_until,
)

MIB = 1024 * 1024
LARGE = bytes(honest_batch(1, bytes(3 * MIB)))


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """The connections that a test opens; its end closes them."""
    with ExitStack() as stack:
        yield stack


def connected(opened: ExitStack, broker: TestBroker) -> RawConnection:
    return opened.enter_context(RawConnection(port_of(broker)))


def logged_in(opened: ExitStack, broker: TestBroker, user: str) -> RawConnection:
    connection = connected(opened, broker)
    password = {"alice": "correct, horse=staple", "bob": "hunter2"}[user]
    assert log_in(connection, user=user, password=password).error_code == 0
    return connection


def is_served(connection: RawConnection) -> bool:
    try:
        return versions(connection).error_code == 0
    except ConnectionError:
        return False


def test_user_with_too_many_connections_gets_no_more(tmp_path: Path, opened: ExitStack) -> None:
    with run_broker(settings(tmp_path, sharegroup_user_connections_max="2")) as broker:
        first, second = (logged_in(opened, broker, "alice") for _ in range(2))
        third = connected(opened, broker)
        with suppress(ConnectionError):  # It may end before or after the answer to the login.
            log_in(third)
        assert not is_served(third)
        assert is_served(logged_in(opened, broker, "bob"))
        assert is_served(first)
        second.socket.close()
        server = broker.running.server
        wait_until(lambda: server.connection_count <= 3, waiting_for="the end of the connection")
        assert is_served(logged_in(opened, broker, "alice"))


def test_requests_behind_a_login_that_is_one_too_many_are_not_carried_out(
    tmp_path: Path, opened: ExitStack
) -> None:
    with run_broker(settings(tmp_path, sharegroup_user_connections_max="1")) as broker:
        broker.create_topic("t", 1)
        produce = frame(produce_request("t", bytes(honest_batch(1, b"x"))))
        login = frame(SaslAuthenticateRequest(auth_bytes=plain()))
        answer_counts = []
        for _ in range(2):
            connection = connected(opened, broker)
            handshake(connection)
            connection.send(login + produce)
            answer_counts.append(sum(connection.answer() is not None for _ in range(2)))
        assert answer_counts == [2, 0]
        _, log = broker.running.parts.topics.named(TopicName("t"), 0)
        assert log.end_offset == 1, "the record of the first connection"


def test_frames_of_one_user_leave_room_for_others(tmp_path: Path, opened: ExitStack) -> None:
    """Three frames of 3 MB do not fit in a user's half of 14 MB; a frame of another user does."""
    changed = {
        "queued_max_request_bytes": str(16 * MIB),
        "message_max_bytes": str(4 * MIB),
        "sharegroup_frame_progress_timeout_ms": "30000",
    }
    with run_broker(settings(tmp_path, **changed)) as broker:
        broker.create_topic("t", 1)
        requests = broker.running.server.budgets.requests
        large = frame(produce_request("t", LARGE))
        greedy = [logged_in(opened, broker, "alice") for _ in range(4)]
        for connection in greedy:
            connection.send(large[:40_000])
        wait_until(lambda: requests.waited_count > 0, waiting_for="a frame without room")
        assert requests.used_bytes < 8 * MIB
        assert produced(logged_in(opened, broker, "bob").ask(produce_request("t", LARGE))) == 0
        for connection in greedy[:2]:  # The first two have their room; then the others get it.
            connection.send(large[40_000:])
            assert connection.answer() is not None
        for connection in greedy[2:]:
            connection.send(large[40_000:])
            assert connection.answer() is not None
        wait_until(lambda: requests.used_bytes == 0, waiting_for="everything is freed")


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_quota_of_a_user_applies_to_all_its_client_ids(
    tmp_path: Path, opened: ExitStack, user: str
) -> None:
    with run_broker(settings(tmp_path)) as broker:
        broker.create_topic("t", 1)
        with RawConnection(port_of(broker, OPEN)) as admin:
            limit(admin, "alice", producer_byte_rate=5_000.0)
        throttled = [
            throttle_ms(
                logged_in(opened, broker, user), client_id, bytes(honest_batch(1, bytes(40_000)))
            )
            for client_id in ("etl", "report")
        ]
        assert throttled[0] == 0
        assert (throttled[1] > 1_000) is (user == "alice")


def limit(admin: RawConnection, user: str, **limits: float) -> None:
    entry = alter.EntryData(
        entity=(alter.EntityData(entity_type="user", entity_name=user),),
        ops=tuple(
            alter.OpData(key=key, value=value, remove=False)  # type: ignore[arg-type]
            for key, value in limits.items()
        ),
    )
    request = alter.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    assert admin.ask(request).entries[0].error_code == 0


def throttle_ms(connection: RawConnection, client_id: str, batch: bytes) -> int:
    """The throttle time in the answer to a Produce request."""
    request: Any = produce_request("t", batch)
    connection.send(b"".join(encode_request(1, client_id, request)))
    answer = connection.answer()
    assert answer is not None
    # The throttle time is the last field before the tags.
    return int.from_bytes(answer[-5:-1], "big")
