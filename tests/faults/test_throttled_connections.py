"""Connections of clients over a quota: nothing is read from them, and they hold little.

The client id ``attacker`` has the quotas, ``raw`` has none.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kio.schema.alter_client_quotas.v1 import request as alter
from kio.schema.describe_client_quotas.v1 import request as describe

from sharegroup.core.quotas.entities import QuotaKey
from sharegroup.ids import TopicName
from sharegroup.testing import TestBroker, run_broker
from tests.attacks.batches import honest_batch
from tests.attacks.target import fetch_request, frame, produce_request, produced, send_what_goes
from tests.faults.raw_connection import RawConnection

MIB = 1024 * 1024
REQUESTS_MAX, FRAME_MAX = 8 * MIB, 7 * MIB
HONEST_SECONDS_MAX = 10.0
SETTINGS = {
    "sharegroup.durability": "os",
    "queued.max.request.bytes": str(REQUESTS_MAX),
    "socket.request.max.bytes": str(FRAME_MAX),
    "message.max.bytes": str(FRAME_MAX),
}
SMALL = honest_batch(1, bytes(20_000))
LARGE = honest_batch(1, bytes(6 * MIB))


@contextmanager
def serving(**limits: float) -> Iterator[TestBroker]:
    """A broker with a topic, and these quotas of the client id ``attacker``."""
    with run_broker(SETTINGS) as broker:
        broker.create_topic("t", 1)
        with connected(broker) as admin:
            assert set_quotas(admin, "client-id", "attacker", **limits) == 0
        yield broker


def connected(broker: TestBroker) -> RawConnection:
    return RawConnection(broker.running.parts.node.port, seconds=HONEST_SECONDS_MAX)


def set_quotas(admin: RawConnection, kind: str, name: str, **limits: float) -> int:
    entry = alter.EntryData(
        entity=(alter.EntityData(entity_type=kind, entity_name=name),),
        ops=tuple(
            alter.OpData(key=key, value=value, remove=False)  # type: ignore[arg-type]
            for key, value in limits.items()
        ),
    )
    request = alter.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    return int(admin.ask(request).entries[0].error_code)


def is_silent(connection: RawConnection, seconds: float) -> bool:
    return not select.select([connection.socket], [], [], seconds)[0]


def wait_until(condition: Any, wanted: str) -> None:
    limit = time.monotonic() + HONEST_SECONDS_MAX
    while not condition():
        assert time.monotonic() < limit, f"not within {HONEST_SECONDS_MAX} s: {wanted}"
        time.sleep(0.001)


def test_requests_that_were_sent_already_wait_until_the_throttle_time_is_over() -> None:
    """The first of three requests is over the quota by ten seconds."""
    with serving(producer_byte_rate=1_000.0) as broker, connected(broker) as client:
        client.send(frame(produce_request("t", bytes(SMALL))) * 3)
        began = time.monotonic()
        assert client.answer() is not None
        assert time.monotonic() - began < 1.0
        assert is_silent(client, 0.3), "the second request is served too early"
        topics = broker.running.parts.topics
        log = topics.named(TopicName("t"), 0)[1]
        assert log.end_offset == 1, "a request of a throttled client was carried out"


def test_frame_that_was_incomplete_meanwhile_is_completed_afterwards() -> None:
    with serving(producer_byte_rate=20_000.0) as broker, connected(broker) as client:
        request = frame(produce_request("t", bytes(honest_batch(1, bytes(205_000)))))
        client.send(request + request[:100_000])
        assert client.answer() is not None  # Its throttle time is a quarter of a second.
        client.send(request[100_000:])
        assert client.answer() is not None


def test_throttled_client_gives_back_the_room_for_the_rest_of_a_frame() -> None:
    """A frame of 6 MB has a grant when a fetch before it is answered and throttles its client."""
    with serving(consumer_byte_rate=100.0) as broker, connected(broker) as client:
        requests = broker.running.server.budgets.requests
        client.send(frame(fetch_request("t", wait_ms=60_000, min_bytes=1)))
        client.send(frame(produce_request("t", bytes(LARGE)))[:50_000])
        wait_until(lambda: requests.used_bytes > 6 * MIB, "the frame has a grant")
        with connected(broker) as honest:
            assert produced(honest.ask(produce_request("t", bytes(SMALL)))) == 0
            assert client.answer() is not None
            wait_until(lambda: 40_000 < requests.used_bytes < MIB, "the grant is given back")
            assert produced(honest.ask(produce_request("t", bytes(LARGE)))) == 0
        assert is_silent(client, 0.1), "the throttled client was disconnected"


def test_throttled_client_with_many_bytes_makes_room_for_others() -> None:
    """Most of a frame has come when its client is throttled: then its connection is closed."""
    with serving(producer_byte_rate=100.0) as broker, connected(broker) as client:
        requests = broker.running.server.budgets.requests
        large = frame(produce_request("t", bytes(LARGE)))
        client.send(large[: 5 * MIB])
        wait_until(lambda: requests.used_bytes > 5 * MIB, "the frame has room")
        with connected(broker) as other, connected(broker) as honest:
            # Another connection of the same client; each connection is throttled by itself.
            other.send(frame(produce_request("t", bytes(SMALL))))
            assert other.answer() is not None
            send_what_goes(other, large[: 5 * MIB])
            assert produced(honest.ask(produce_request("t", bytes(LARGE)))) == 0


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_quotas_survive_a_restart(ends: str) -> None:
    with serving(producer_byte_rate=1_000.0, consumer_byte_rate=3_000.0) as broker:
        getattr(broker, ends)()
        broker.start()
        with connected(broker) as admin:
            everything = describe.DescribeClientQuotasRequest(components=(), strict=False)
            [entry] = admin.ask(everything).entries
            assert {value.key: value.value for value in entry.values} == {
                "producer_byte_rate": 1_000.0, "consumer_byte_rate": 3_000.0,
            }  # fmt: skip
        with connected(broker) as client:
            client.send(frame(produce_request("t", bytes(SMALL))) * 2)
            assert client.answer() is not None
            assert is_silent(client, 0.3)


def test_thousands_of_client_ids_share_the_limit_of_the_default() -> None:
    """Client ids beyond the number of meters are counted together, so they get no more in sum."""
    with run_broker({**SETTINGS, "sharegroup.client.quota.meters.max": "10"}) as broker:
        broker.create_topic("t", 1)
        quotas = broker.running.parts.quotas
        with connected(broker) as admin:
            entry = alter.EntryData(
                entity=(alter.EntityData(entity_type="client-id", entity_name=None),),
                ops=(
                    alter.OpData(
                        key="producer_byte_rate",
                        value=100_000.0,  # type: ignore[arg-type]
                        remove=False,
                    ),
                ),
            )
            admin.ask(alter.AlterClientQuotasRequest(entries=(entry,), validate_only=False))
        for number in range(100):
            with connected(broker) as client:
                data = frame(produce_request("t", bytes(SMALL)))
                # The client id is the only text of the header; its length stays the same.
                client.send(data.replace(b"attacker", b"atk%05d" % number, 1))
                assert client.answer() is not None
        assert quotas.meter_count <= 10
        assert quotas.shared_meter_count == 90
        throttled = quotas.counters[QuotaKey.PRODUCER_BYTE_RATE].count
        assert throttled > 30, "ninety client ids got as much as if each had its own limit"
