"""What a client has sent is decided, also when its connection closes before: acks=0 loses nothing.

As in Kafka, whose selector keeps a closing channel until its received requests are processed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kio.schema.produce.v12 import request as produce

from sharegroup.broker.server.connection import Connection
from sharegroup.ids import TopicName
from sharegroup.testing import Security, broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.codec.encoder import encode_request
from tests.faults.in_process import SECOND, Broker, HurryingClock
from tests.support.limits import HANGING_SECONDS

PARTITIONS = 1_000
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: the connection is closed with a reset."""


def run(scenario: Callable[[Broker], Awaitable[None]], path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path), clock=HurryingClock())
        try:
            assert await broker.create_topic("wide", PARTITIONS) == 0
            async with asyncio.timeout(HANGING_SECONDS):
                await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


def produced(*partitions: int) -> bytes:
    """The frame of a Produce request with acks=0: a record for each partition."""
    batch = bytes(encode_batch([SimpleRecord(b"k", b"v", 0)]))
    data = tuple(produce.PartitionProduceData(index=index, records=batch) for index in partitions)
    request = produce.ProduceRequest(
        transactional_id=None,
        acks=0,
        timeout=SECOND,
        topic_data=(produce.TopicProduceData(name="wide", partition_data=data),),
    )
    return b"".join(encode_request(1, "test", request))


WIDE = produced(*range(PARTITIONS))


async def undecided(broker: Broker, *frames: bytes) -> asyncio.StreamWriter:
    """Send frames; return when the first of them is being decoded."""
    parts = broker.running.parts
    before = len(parts.late_requests.waiting)
    _, writer = await asyncio.open_connection("127.0.0.1", parts.node.port)
    writer.write(b"".join(frames))
    while len(parts.late_requests.waiting) == before:
        await asyncio.sleep(0)
    return writer


async def closed_before(
    broker: Broker, *writers: asyncio.StreamWriter, reset: bool = False
) -> None:
    """Close connections; return when the broker knows, and their requests are still undecided."""
    for writer in writers:
        if reset:
            peer: socket.socket = writer.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.close()
    while not all(connection.is_lost for connection in connections(broker)):
        assert len(connections(broker)) >= len(writers), "the requests were decided before"
        await asyncio.sleep(0)


def connections(broker: Broker) -> list[Connection]:
    return list(broker.running.server._connections.values())


async def all_closed(broker: Broker) -> None:
    while broker.running.server.connection_count:
        await asyncio.sleep(0)


def ends(broker: Broker) -> list[int]:
    topics = broker.running.parts.topics
    topic = topics.catalog.topic(TopicName("wide"))
    return [topics.log_of(topic, number).end_offset for number in range(PARTITIONS)]


@pytest.mark.parametrize("reset", [False, True])
def test_a_large_request_and_those_behind_it_are_decided_after_the_end(
    tmp_path: Path, reset: bool
) -> None:
    async def scenario(broker: Broker) -> None:
        writer = await undecided(broker, WIDE, produced(7), produced(7))
        await closed_before(broker, writer, reset=reset)
        await all_closed(broker)
        assert ends(broker) == [1] * 7 + [3] + [1] * (PARTITIONS - 8)

    run(scenario, tmp_path)


def test_a_stop_of_the_broker_decides_what_it_has_received(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path), clock=HurryingClock())
        assert await broker.create_topic("wide", PARTITIONS) == 0
        await closed_before(broker, await undecided(broker, WIDE))
        still_open = await undecided(broker, WIDE)
        await broker.stop()
        still_open.close()
        again = await Broker.start(None, str(tmp_path))
        try:
            assert ends(again) == [2] * PARTITIONS
        finally:
            await again.stop()

    asyncio.run(main())


def test_nothing_behind_a_frame_that_cannot_be_read_is_decided(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        garbage = WIDE[:4] + WIDE[4:12] + b"\xff" * (len(WIDE) - 12)
        writer = await undecided(broker, WIDE, garbage, produced(7))
        await closed_before(broker, writer)
        await all_closed(broker)
        assert ends(broker) == [1] * PARTITIONS

    run(scenario, tmp_path)


def test_undecided_requests_of_closed_connections_hold_their_place_and_their_bytes(
    tmp_path: Path,
) -> None:
    async def scenario(broker: Broker) -> None:
        server = broker.running.server
        budget = server.budgets.requests
        writers = [await undecided(broker, WIDE) for _ in range(3)]
        await closed_before(broker, *writers)
        lost = connections(broker)
        assert len(lost) == server.connection_count == server.admission.count == 3
        assert budget.used_bytes >= 3 * len(WIDE)
        lost[1].close("others need its room")  # As the budget does it.
        await all_closed(broker)
        assert (server.admission.count, budget.used_bytes) == (0, 0)
        assert sum(ends(broker)) == 2 * PARTITIONS

    run(scenario, tmp_path)


@pytest.mark.parametrize("security", [None, Security(tls=True)], ids=["plain", "tls"])
def test_many_requests_and_the_end_of_the_connection_at_once(security: Security | None) -> None:
    """More than one turn decides: TLS sees the end while requests before it wait for the next."""

    async def main() -> None:
        async with asyncio.timeout(HANGING_SECONDS), broker(security=security) as served:
            await served.create_topic("wide")
            server = served.running.server
            others = server.connection_count
            authority = served.client_options().get("ssl_cafile")
            context = None if authority is None else ssl.create_default_context(cafile=authority)
            host, port = served.bootstrap_servers.split(":")
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
            writer.write(produced(0) * 3_000)
            writer.close()
            await writer.wait_closed()
            while server.connection_count > others:
                await asyncio.sleep(0.01)
            _, log = served.running.parts.topics.named(TopicName("wide"), 0)
            assert log.end_offset == 3_000

    asyncio.run(main())
