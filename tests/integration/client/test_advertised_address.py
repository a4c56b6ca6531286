"""A bootstrap server that answers, and advertises an address that clients cannot reach."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, Consumer, NewTopic, TopicPartition
from sharegroup.errors import RequestTimedOut
from sharegroup.testing import broker
from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS

ADVERTISED = "no-such-host.invalid:9092"


def test_error_says_that_the_broker_advertises_the_address() -> None:
    async def run() -> None:
        [port] = free_ports(1)
        here = f"127.0.0.1:{port}"
        settings = {
            "listeners": f"PLAINTEXT://{here}",
            "advertised.listeners": f"PLAINTEXT://{ADVERTISED}",
        }
        reason = f"broker {ADVERTISED}: .*node 1 advertises this address .*clients can reach"
        async with broker(settings):
            async with AdminClient(bootstrap_servers=here) as admin:
                assert await admin.create_topics(
                    [NewTopic("orders", 1)], timeout=HANGING_SECONDS
                ) == {"orders": None}
            async with Consumer(bootstrap_servers=here, default_api_timeout_ms=3_000) as consumer:
                with pytest.raises(RequestTimedOut, match=reason):
                    await consumer.end_offsets([TopicPartition("orders", 0)])

    asyncio.run(run())
