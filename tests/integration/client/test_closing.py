"""A client that is closed ends soon, whatever it was about to try again."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.errors import NetworkException
from sharegroup.testing import broker
from tests.support.limits import HANGING_SECONDS


async def closed_at_once():
    async with broker() as running:
        async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("orders", 1)])
        producer = Producer(bootstrap_servers=running.bootstrap_servers)
        future = await producer.send("orders", b"one apple")
        async with asyncio.timeout(HANGING_SECONDS):
            await producer.close(timeout=0)
        with pytest.raises(NetworkException):
            await future


def test_producer_closed_before_it_has_an_id_requests_no_other_one():
    asyncio.run(closed_at_once())
