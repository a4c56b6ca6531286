"""Records that came back and lie apart come in one fetch, without most batches between them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, strategies as st

from sharegroup.broker.share.share_reading import SKIPPED_BYTES_MIN, _parts
from sharegroup.core.delivery.delivery import Acquired
from sharegroup.storage.segment.boundaries import BatchSpans
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import ACCEPT, RELEASE, Broker, ShareMember
from tests.integration.broker.test_share_fetch import run

COUNT = 600


async def settle(
    broker: Broker, member: ShareMember, *released: int, count: int = COUNT, size: int = 10
) -> None:
    """Batches of one record each, of which these came back and the others are accepted."""
    for number in range(count):
        batch = encode_batch([SimpleRecord(None, b"%05d" % number + bytes(size), 0)])
        assert (await broker.produce("orders", 0, batch))[0] == 0
    taken: list[int] = []
    while len(taken) < count:
        found, _ = await member.fetch(broker, records_max=500)
        taken += [record.offset for record in found]
    acks = [(offset, RELEASE if offset in released else ACCEPT) for offset in taken]
    assert await member.acknowledge(broker, {0: acks}) == {0: 0}


def test_records_far_apart_are_returned_by_one_fetch(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await settle(broker, member, 1, 3, 500)
        taken, _ = await member.fetch(broker, records_max=2)
        assert [(record.offset, record.delivery_count) for record in taken] == [(1, 2), (3, 2)]
        taken, _ = await member.fetch(broker, records_max=2)
        assert [record.offset for record in taken] == [500]

    run(scenario, tmp_path)


def test_released_and_new_records_are_returned_together(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await settle(broker, member, 1, 300)
        batch = encode_batch([SimpleRecord(None, b"new", 0)] * 3)
        assert (await broker.produce("orders", 0, batch))[0] == 0
        taken, _ = await member.fetch(broker, records_max=4)
        assert [record.offset for record in taken] == [1, 300, 600, 601, 602]
        assert taken[-1].value == b"new"

    run(scenario, tmp_path)


def test_batches_between_are_not_sent(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await settle(broker, member, 1, 500, size=1_000)
        [live] = broker.running.parts.share_partitions
        taken, _ = await member.fetch(broker, records_max=2)
        assert [record.offset for record in taken] == [1, 500]
        before = live.log.batches(1, end=501, bytes_max=1 << 24).total_bytes
        assert before > 500_000
        ranges = (Acquired(1, 2, 2), Acquired(500, 501, 2))
        found = live.log.batches(1, end=501, bytes_max=1 << 24)
        assert _parts(ranges, found) == [(1, 2), (500, 501)]

    run(scenario, tmp_path)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=60),
    st.sets(st.integers(0, 299), min_size=1, max_size=8),
    st.integers(100, 2 * SKIPPED_BYTES_MIN),
)
def test_parts_cover_all_ranges_and_no_batch_twice(
    sizes: list[int], offsets: set[int], batch_bytes: int
) -> None:
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    firsts = [0, *ends[:-1]]
    found = BatchSpans(firsts, ends, batch_bytes * len(sizes))
    wanted = sorted({offset % ends[-1] for offset in offsets})
    parts = _parts(tuple(Acquired(offset, offset + 1, 1) for offset in wanted), found)
    batches = [
        {index for index in range(len(sizes)) if firsts[index] < end and first < ends[index]}
        for first, end in parts
    ]
    assert all(any(first <= offset < end for first, end in parts) for offset in wanted)
    assert sum(map(len, batches)) == len(set().union(*batches))
