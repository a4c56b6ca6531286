"""Records that are sent with their contents encoded: beside others, and refused like others."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import Producer, TopicPartition
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.errors import MessageTooLarge, UnknownTopicOrPartition
from sharegroup.testing import TestBroker, broker
from sharegroup.wire.batches.record_contents import encoded_names, record_content

WHERE = TopicPartition("orders", 0)
COUNT = 60


def content(value: bytes) -> bytes:
    return record_content(encoded_names(["n"]), [b"k", value, b"h"])


async def read(running: TestBroker) -> list[tuple[int, bytes | None, bytes | None, object]]:
    cluster = Cluster(config_from(ReadingConfig, {"bootstrap_servers": running.bootstrap_servers}))
    found = []
    try:
        async for records in read_records(cluster, PartitionRange(WHERE, 0, COUNT), committed=True):
            found += [(one.offset, one.key, one.value, one.headers) for one in records]
    finally:
        cluster.close()
    return found


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_order_is_that_of_the_calls(transactional_id: str | None) -> None:
    """Both kinds of records in turn for one partition: each batch has one kind."""

    async def main() -> None:
        async with (
            broker() as running,
            Producer(
                bootstrap_servers=running.bootstrap_servers, transactional_id=transactional_id
            ) as producer,
        ):
            if transactional_id:
                await producer.begin_transaction()
            futures = []
            for number in range(COUNT):
                value = b"%d" % number
                if number % 7 < 4:
                    sent = await producer.send_content(
                        "orders", content(value), key=b"k", partition=0
                    )
                else:
                    sent = await producer.send(
                        "orders", value, key=b"k", headers=[("n", b"h")], partition=0
                    )
                futures.append(sent)
            places = [(await future).offset for future in futures]
            if transactional_id:
                await producer.commit_transaction()
            assert places == list(range(COUNT))
            assert await read(running) == [
                (number, b"k", b"%d" % number, [("n", b"h")]) for number in range(COUNT)
            ]

    asyncio.run(main())


def test_content_is_refused_like_a_record() -> None:
    async def main() -> None:
        async with (
            broker() as running,
            Producer(
                bootstrap_servers=running.bootstrap_servers,
                request_bytes_max=100_000,
            ) as producer,
        ):
            with pytest.raises(MessageTooLarge):
                await producer.send_content(
                    "orders", content(b"x" * 100_000), key=b"k", partition=0
                )
            with pytest.raises(UnknownTopicOrPartition):
                await producer.send_content("orders", content(b"x"), key=b"k", partition=99)

    asyncio.run(main())
