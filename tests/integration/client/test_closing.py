"""A client that is closed ends soon, whatever it was about to try again, and loses nothing sent."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, NewTopic, OffsetSpec, Producer, TopicPartition
from sharegroup.errors import NetworkException
from sharegroup.testing import Security, broker, run_broker
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


LARGE = b"x" * 900_000


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("security", [None, Security(tls=True)], ids=["plain", "tls"])
def test_closed_producer_has_sent_what_nobody_confirms(
    security: Security | None, waits: bool
) -> None:
    """With acks=0 an abandoned write buffer would be records lost without a sign.

    Commands flush and then close without a time.
    """
    with run_broker(security=security) as running:
        running.create_topic("orders")
        options = running.client_options()

        async def produce() -> None:
            producer = Producer(**options, acks=0, idempotent=False)
            futures = [await producer.send("orders", LARGE) for _ in range(30)]
            await producer.flush()
            for future in futures:
                assert (await future).offset == -1
            await (producer.close() if waits else producer.close(timeout=0))

        asyncio.run(produce())

        async def wait_for_records() -> None:
            # The broker closes its side before it has decided the last requests (ADR 0006).
            where = TopicPartition("orders", 0)
            async with AdminClient(**options) as admin, asyncio.timeout(HANGING_SECONDS):
                while (await admin.list_offsets({where: OffsetSpec.LATEST}))[where].offset < 30:
                    await asyncio.sleep(0.01)

        asyncio.run(wait_for_records())
