"""Blocks of history: what is written is read back, and what is no block is refused."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import example, given, strategies as st

from sharegroup.console.remember.blocks import (
    BLOCK_BYTES_MAX,
    COUNT,
    GROUP,
    HEADER,
    ID_BYTES_MAX,
    MAGIC,
    PACK_BYTES,
    VERSION,
    Block,
    DamagedBlock,
    GroupPoints,
    _checksum,
    packed,
    parsed,
)
from sharegroup.console.watch.history import LAG_MAX, SETTLED_MAX, Columns, Tier

START = 1_700_000_040_000


def points_of(*points: tuple[int, int, int]) -> Columns:
    return Columns(*(array("q", (point[part] for point in points)) for part in range(3)))


def written(raw: bytes, *, version: int = VERSION, tier: int = 0, size: int | None = None) -> bytes:
    """A block with any content, whose checksum fits."""
    count = len(raw) if size is None else size
    checksum = _checksum(tier, START, raw)
    return HEADER.pack(MAGIC, version, tier, START, count, checksum) + zlib.compress(raw)


def raw_of(names: Sequence[bytes], *numbers: int, count: int | None = None) -> bytes:
    """The content of a block whose groups have one point each, unless ``count`` says otherwise."""
    heads = b"".join(GROUP.pack(len(name), 1 if count is None else count) + name for name in names)
    return COUNT.pack(len(names)) + heads + array("q", numbers).tobytes()


group_ids = st.text(st.characters(codec=None), min_size=1, max_size=30) | st.sampled_from(
    ["\0", "\ud800", "x" * ID_BYTES_MAX]
)
numbers = st.sampled_from([0, SETTLED_MAX]) | st.integers(0, SETTLED_MAX)
series = st.lists(
    st.tuples(
        st.integers(0, Tier.SECONDS.keep_ms), st.sampled_from([-1, LAG_MAX]) | numbers, numbers
    ),
    min_size=1, max_size=9, unique_by=lambda point: point[0],
).map(lambda points: points_of(*sorted(points)))  # fmt: skip


@given(
    tier=st.sampled_from(Tier),
    slot_ms=st.sampled_from([0, 2**63 - 1]),
    groups=st.dictionaries(group_ids, series, min_size=1, max_size=6),
)
@example(
    tier=Tier.MINUTES,
    slot_ms=0,
    groups={
        "x" * (ID_BYTES_MAX + 1): points_of((0, 0, 0)),
        "": points_of((0, 0, 0)),
        "g": points_of((0, -1, 0)),
    },
)
def test_block(tier: Tier, slot_ms: int, groups: dict[str, Columns]) -> None:
    """A group whose id is longer than Kafka's protocol allows, or empty, is left out."""
    (block,) = packed(tier, slot_ms, [GroupPoints(*group) for group in groups.items()])
    expected = tuple(
        GroupPoints(name, points)
        for name, points in groups.items()
        if 0 < len(name) <= ID_BYTES_MAX
    )
    assert parsed(block) == Block(tier, slot_ms, expected)


def test_groups_that_are_too_many_for_one_block_go_to_several() -> None:
    points = points_of(*((START + second * 1000, second, second) for second in range(600)))
    groups = [GroupPoints(f"group {number}", points) for number in range(100)]
    blocks = list(packed(Tier.SECONDS, START, groups))
    assert len(blocks) == 3
    assert max(map(len, blocks)) < PACK_BYTES
    assert [group for block in blocks for group in parsed(block).groups] == groups


def test_all_points_of_one_group_fit_into_a_block() -> None:
    minutes = Tier.MINUTES.keep_ms // 60_000 + 1
    points = points_of(*((minute * 60_000, minute * 7919, minute) for minute in range(minutes)))
    (block,) = packed(Tier.MINUTES, 0, [GroupPoints("x" * ID_BYTES_MAX, points)])
    assert parsed(block).groups[0].points == points


def test_no_groups_are_no_block() -> None:
    assert list(packed(Tier.SECONDS, START, [])) == []
    assert list(packed(Tier.SECONDS, START, [GroupPoints("g", points_of())])) == []


GOOD = next(iter(packed(Tier.SECONDS, START, [GroupPoints("g", points_of((START, 5, 6)))])))


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"", "expected a block"),
        (b'{"id": 7}', "expected a block"),
        (b"x" * 100, "expected a block"),
        (GOOD[:-1], "bytes unpacked"),
        (GOOD + b"x", "bytes unpacked"),
        (GOOD[: HEADER.size], "bytes unpacked"),
        (GOOD[: HEADER.size] + b"no zlib", "cannot be unpacked"),
        (written(b"", version=2), "version 1 of the format, found 2"),
        (written(b"", size=BLOCK_BYTES_MAX + 1), f"at most {BLOCK_BYTES_MAX}"),
        (written(bytes(10_000_000), size=10), "expected 10 bytes unpacked"),
        (written(raw_of([b"g"], 1, 2, 3), tier=2), "checksum"),
        (written(b""), "its groups cannot be read"),
        (written(COUNT.pack(0)), "expected 1 to 10000 groups, found 0"),
        (written(COUNT.pack(2**32 - 1)), "groups, found 4294967295"),
        (written(COUNT.pack(1) + GROUP.pack(500, 1) + b"g"), "an id of 500 bytes"),
        (written(raw_of([b""], 1, 2, 3)), "an id of 0 bytes"),
        (written(raw_of([b"g"], count=0)), "0 points"),
        (written(raw_of([b"\xff"], 1, 2, 3)), "cannot be read"),
        (written(raw_of([b"g", b"g"], 1, 2, 3, 1, 2, 3)), "each of them once"),
        (written(raw_of([b"g"], 1, 2)), "expected 1 points"),
        (written(raw_of([b"g"], 1, 2, 3, count=2**32 - 1)), "expected 4294967295 points"),
        (written(raw_of([b"g"], 5, 5, 0, 0, 0, 0, count=2)), "in order of time"),
        (written(raw_of([b"g"], -1, 0, 0)), "points from -1"),
        (written(raw_of([b"g"], 0, 2**62, 0, 0, 0, 0, count=2)), "points from 0 to"),
        (written(raw_of([b"g"], 1, -2, 0)), "cannot be"),
        (written(raw_of([b"g"], 1, 0, -1)), "cannot be"),
        (written(raw_of([b"g"], 1, 0, SETTLED_MAX + 1)), "cannot be"),
    ],
)  # fmt: skip
def test_what_is_no_block_is_refused(block: bytes, reason: str) -> None:
    with pytest.raises(DamagedBlock, match=reason):
        parsed(block)


@given(at=st.integers(0, len(GOOD) - 1), bit=st.integers(0, 7))
def test_flipped_bit_changes_no_points(at: int, bit: int) -> None:
    """It is found, unless it is one of those that fill the last byte before zlib's checksum."""
    flipped = bytearray(GOOD)
    flipped[at] ^= 1 << bit
    with suppress(DamagedBlock):
        assert parsed(bytes(flipped)) == parsed(GOOD)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read(content: bytes) -> None:
    for block in (content, GOOD[: HEADER.size] + content, written(content)):
        with suppress(DamagedBlock):
            parsed(block)
