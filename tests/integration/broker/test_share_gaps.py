"""Share groups on a compacted log: offsets without records hold nobody up.

Batches of about 300 bytes in segments of 1,024: three to each.  Compaction keeps the last batch
of a segment, if need be without records, so that the segment ends where it did; a fetch reads no
further than to the end of a segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from sharegroup.ids import TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import records, request

TOPIC = TopicName("orders")
ROUNDS = 400
"""Of the storage thread; a pass over one small log takes fewer."""


def run(path: Path, scenario: Callable[[Broker, ShareMember], Awaitable[None]]) -> None:
    """A broker with one compacted topic, and a member whose session is open."""

    async def main() -> None:
        broker = await Broker.start(None, str(path), log_segment_bytes="1024")
        try:
            topics = broker.running.parts.topics
            await topics.create(TOPIC, partitions=1, settings={"cleanup.policy": "compact"})
            member = ShareMember("g", "member-1", TOPIC, 1, connection_id=1)
            assert await member.heartbeat(broker) == 0
            assert await member.fetch(broker, records_max=10) == ([], {})
            await scenario(broker, member)
        finally:
            await broker.stop()

    asyncio.run(main())


async def write(broker: Broker, *keys: bytes) -> None:
    """One batch with a record for each key."""
    now_ms = broker.clock.wall_ms()
    batch = encode_batch([SimpleRecord(key, bytes(240 // len(keys)), now_ms) for key in keys])
    assert (await broker.produce(TOPIC, 0, batch))[0] == 0


async def taken(
    broker: Broker, member: ShareMember, fetches: int, *, records_max: int = 10
) -> list[tuple[int, int, int]]:
    """First and last offset and delivery count of all that so many fetches acquire."""
    found: list[tuple[int, int, int]] = []
    for _ in range(fetches):
        message = request(member, max_wait=timedelta(0), max_records=records_max)
        found += records(await broker.ask(message))
        member.session_epoch += 1
    return found


async def compacted(broker: Broker) -> None:
    """Let the cleaner come by and finish."""
    directory = broker.running.directory
    await directory.checkpoint()
    broker.clock.advance(16)
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
        await directory.drain()


def test_compacted_records_are_settled_when_a_fetch_reaches_them(tmp_path: Path) -> None:
    """0 to 5 were released, 6 to 8 never delivered, 9 to 11 are the newest of three keys.

    12 to 14 are in the active segment, which is not compacted.  2, 5 and 8 end their segments:
    they are delivered, and their batches are empty.
    """

    async def scenario(broker: Broker, member: ShareMember) -> None:
        for number in range(15):
            await write(broker, b"%d" % (number % 3))
        assert await taken(broker, member, 2) == [(0, 2, 1), (3, 5, 1)]
        release = [(offset, AcknowledgeType.RELEASE) for offset in range(6)]
        assert await member.acknowledge(broker, {0: release}) == {0: 0}
        await compacted(broker)
        assert await taken(broker, member, 4) == [(2, 2, 2), (5, 5, 2), (8, 8, 1), (9, 11, 1)]
        gaps = {0: [(offset, AcknowledgeType.GAP) for offset in (2, 5, 8)]}
        assert await member.acknowledge(broker, gaps) == {0: 0}
        assert await broker.group_offsets("g", TOPIC, 1) == [(9, 6)]
        [live] = broker.running.parts.share_partitions
        live.state.check()

    run(tmp_path, scenario)


def test_fetch_of_fewer_records_than_a_hole_has_offsets_passes_it(tmp_path: Path) -> None:
    """Of 0 to 5 only 2 and 5 are left, which end their segments."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        for number in range(12):
            await write(broker, b"%d" % (number % 3))
        await compacted(broker)
        found = await taken(broker, member, 3, records_max=1)
        assert found == [(2, 2, 1), (5, 5, 1), (6, 6, 1)]

    run(tmp_path, scenario)


def test_record_compacted_while_held_is_settled_by_its_member(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        for number in range(12):
            await write(broker, b"%d" % (number % 3))
        assert await taken(broker, member, 1) == [(0, 2, 1)]
        await compacted(broker)
        acks = [
            (0, AcknowledgeType.ACCEPT),
            (1, AcknowledgeType.RELEASE),
            (2, AcknowledgeType.ACCEPT),
        ]
        assert await member.acknowledge(broker, {0: acks}) == {0: 0}
        assert await taken(broker, member, 3) == [(5, 5, 1), (6, 8, 1), (9, 11, 1)]
        assert await broker.group_offsets("g", TOPIC, 1) == [(5, 7)]

    run(tmp_path, scenario)


def test_record_missing_inside_a_batch_is_acknowledged_as_a_gap(tmp_path: Path) -> None:
    """The broker returns whole batches; a client that decodes this one finds no offset 0 in it."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await write(broker, b"a", b"b", b"a")
        for _ in range(6):
            await write(broker, b"c")
        await compacted(broker)
        answer = await broker.ask(request(member, max_records=1))
        assert records(answer) == [(0, 2, 1)]
        member.session_epoch = 2
        acks = [(0, AcknowledgeType.GAP), (1, AcknowledgeType.ACCEPT), (2, AcknowledgeType.ACCEPT)]
        assert await member.acknowledge(broker, {0: acks}) == {0: 0}
        [live] = broker.running.parts.share_partitions
        assert live.state.start_offset == 3

    run(tmp_path, scenario)
