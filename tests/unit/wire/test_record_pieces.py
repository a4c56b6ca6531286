"""Large batches are read in pieces, and only what cannot be read is left out of them."""

from __future__ import annotations

import gzip
import random
import tracemalloc

import cramjam
import pytest
from hypothesis import given, strategies as st

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import HEADER_BYTES, parse_header
from sharegroup.wire.batches.compression import CODECS, SNAPPY, XERIAL_HEADER, compress, decompress
from sharegroup.wire.batches.compression_streams import PIECE_BYTES, ZSTD_FRAMES_MAX, pieces
from sharegroup.wire.batches.record_pieces import UnreadableRange, read_pieces
from sharegroup.wire.batches.record_walk import check_batch, finish
from sharegroup.wire.batches.records import DecodedRecord, SimpleRecord, encode_batch
from tests.attacks.batches import batch
from tests.support.odd_batches import zigzag

GZIP, ZSTD = CODECS["gzip"], CODECS["zstd"]
COMPRESSED = [CODECS[name] for name in ("gzip", "snappy", "lz4", "zstd")]
MIB = 1024 * 1024


def read(data: bytes | bytearray, bytes_max: int):
    """Offsets of the records in each piece, and ranges that are unreadable."""
    found = read_pieces(
        data, 0, parse_header(data), list[DecodedRecord], decompressed_bytes_max=bytes_max
    )
    return [
        piece[:2] if isinstance(piece, UnreadableRange) else [record.offset for record in piece]
        for piece in found
    ]


def offsets_of(parts) -> list[int]:
    return [offset for part in parts if isinstance(part, list) for offset in part]


def noise(size: int) -> bytes:
    """Bytes of which a part can be compressed."""
    dice = random.Random(size)
    return b"".join(
        dice.choice((dice.randbytes(100), b"abc" * 500, dice.randbytes(7) * 90))
        for _ in range(size // 600)
    )


@pytest.mark.parametrize("codec", COMPRESSED)
def test_stream_is_the_payload_in_pieces(codec: int) -> None:
    payload = noise(5_000_000)
    stream = [bytes(piece) for piece in pieces(codec, compress(codec, payload))]
    assert b"".join(stream) == payload
    assert max(map(len, stream)) <= 4 * PIECE_BYTES
    assert len(stream) > 2


def test_zstd_stream_may_have_several_frames_up_to_a_limit() -> None:
    frame = compress(ZSTD, b"abc" * 50_000)
    assert b"".join(map(bytes, pieces(ZSTD, frame * 3))) == b"abc" * 150_000
    empty = compress(ZSTD, b"")
    assert b"".join(map(bytes, pieces(ZSTD, empty * ZSTD_FRAMES_MAX))) == b""
    with pytest.raises(CorruptMessage, match="zstd: more than 1000 frames"):
        list(pieces(ZSTD, empty * (ZSTD_FRAMES_MAX + 1)))


def test_zstd_stream_that_is_cut_off_or_asks_for_a_huge_window_is_damaged() -> None:
    frame = compress(ZSTD, noise(3_000_000))
    for size in (3, 5, len(frame) // 2, len(frame) - 1):
        with pytest.raises(CorruptMessage, match="zstd: the frame is cut off"):
            list(pieces(ZSTD, frame[:size]))
    huge = bytes.fromhex("28b52ffd00f8010000")
    with pytest.raises(CorruptMessage, match="zstd: "):
        list(pieces(ZSTD, huge))


def test_raw_block_of_snappy_is_a_stream() -> None:
    payload = noise(5_000_000)
    block = bytes(cramjam.snappy.compress_raw(payload))
    stream = [bytes(piece) for piece in pieces(SNAPPY, block)]
    assert b"".join(stream) == payload
    assert max(map(len, stream)) < 2 * PIECE_BYTES
    framed = XERIAL_HEADER + len(block).to_bytes(4, "big") + block
    assert b"".join(map(bytes, pieces(SNAPPY, framed))) == payload


@given(
    payload=st.binary(max_size=300).map(lambda part: part * 40),
    codec=st.sampled_from(COMPRESSED),
    places=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4)), max_size=3),
)
def test_stream_of_damaged_bytes_ends_with_an_error_or_is_read_alike(payload, codec, places):
    data = bytearray(compress(codec, payload))
    for where, content in places:
        at = int(where * len(data))
        data[at : at + len(content)] = content
    try:
        whole = decompress(codec, data, bytes_max=10 * MIB)
    except CorruptMessage:
        whole = None
    try:
        stream = b"".join(map(bytes, pieces(codec, data)))
    except CorruptMessage:
        return
    assert whole is None or stream == bytes(whole)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_batch_above_the_limit_is_read_in_pieces(codec: int) -> None:
    records = [SimpleRecord(b"%d" % n, b"v" * 90_000, n, [("h", b"1")]) for n in range(60)]
    data = encode_batch(records, codec=codec)
    found = read(data, MIB)
    assert len(found) > 3
    assert offsets_of(found) == list(range(60))
    finish(check_batch(data, parse_header(data), bytes_max=MIB))


@pytest.mark.parametrize("place", [0, 1])
def test_empty_part_of_a_stream_is_not_its_end(place: int) -> None:
    body = bytes(encode_batch([SimpleRecord(None, b"v" * 90_000, 0)] * 60)[HEADER_BYTES:])
    parts = [gzip.compress(body[: len(body) // 2]), gzip.compress(body[len(body) // 2 :])]
    parts.insert(place, gzip.compress(b""))
    data = batch(b"".join(parts), count=60, codec=GZIP)
    assert offsets_of(read(data, MIB)) == list(range(60))
    finish(check_batch(data, parse_header(data), bytes_max=MIB))


def test_seven_kilobytes_of_170_good_records_are_read() -> None:
    data = encode_batch([SimpleRecord(None, b"x" * 900 * 1024, 0)] * 170, codec=ZSTD)
    assert len(data) < 8_000
    assert offsets_of(read(data, 128 * MIB)) == list(range(170))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_record_above_the_limit_is_unreadable_alone(codec: int) -> None:
    sizes = [10, 3 * MIB, 20, 4 * MIB, 5 * MIB, 30]
    data = encode_batch([SimpleRecord(None, b"x" * size, 0) for size in sizes], codec=codec)
    found = read(data, 2 * MIB)
    assert offsets_of(found) == [0, 2, 5]
    assert [part for part in found if isinstance(part, tuple)] == [(1, 2), (3, 4), (4, 5)]
    finish(check_batch(data, parse_header(data), bytes_max=2 * MIB))


@pytest.mark.parametrize(
    "deltas",
    [
        (0, 1, 1, 3),  # The same offset as the large record before.
        (0, 2, 1, 3),
        (1, 1, 2, 3),  # The large record has the offset of the one before.
        (0, -1, 2, 3),
        (0, 4, 2, 3),  # Behind the end of the batch.
        (0, 1, 2, 2),
    ],
)
def test_offset_of_a_record_above_the_limit_has_to_ascend_like_others(
    deltas: tuple[int, ...],
) -> None:
    """Two records of one offset could not be acknowledged apart."""
    sound, odd = (
        b"".join(
            record_at(delta, 3 * MIB if number in (1, 3) else 10)
            for number, delta in enumerate(chosen)
        )
        for chosen in ((0, 1, 2, 3), deltas)
    )
    data = batch(compress(ZSTD, sound), count=4, codec=ZSTD)
    finish(check_batch(data, parse_header(data), bytes_max=2 * MIB))
    data = batch(compress(ZSTD, odd), count=4, codec=ZSTD)
    with pytest.raises(CorruptMessage, match="has offset delta"):
        finish(check_batch(data, parse_header(data), bytes_max=2 * MIB))


def record_at(delta: int, value_bytes: int) -> bytes:
    fields = b"\0\0" + zigzag(delta, 32) + b"\1" + zigzag(value_bytes, 32)
    return zigzag(len(fields) + value_bytes + 1, 32) + fields + bytes(value_bytes) + b"\0"


def test_stream_that_breaks_is_unreadable_from_there() -> None:
    records = [SimpleRecord(None, random.Random(n).randbytes(100_000), 0) for n in range(60)]
    body = encode_batch(records, codec=ZSTD)[HEADER_BYTES:]
    data = batch(bytes(body[: len(body) // 2]), count=60, codec=ZSTD)
    *pieces_before, (first, end) = read(data, MIB)
    assert 10 < first < 50
    assert offsets_of(pieces_before) == list(range(first))
    assert end == 60
    with pytest.raises(CorruptMessage):
        finish(check_batch(data, parse_header(data), bytes_max=MIB))


@pytest.mark.parametrize("claim", [1, 59, 61])
def test_stream_with_another_number_of_records_ends_with_a_range(claim: int) -> None:
    body = encode_batch([SimpleRecord(None, b"v" * 90_000, 0)] * 60, codec=GZIP)[HEADER_BYTES:]
    found = read(batch(bytes(body), count=claim, codec=GZIP), MIB)
    assert isinstance(found[-1], tuple)
    assert offsets_of(found) == list(range(len(offsets_of(found))))
    assert len(offsets_of(found)) <= claim


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 100])
def test_bomb_takes_the_memory_of_a_piece(count: int) -> None:
    """A gigabyte of records in one record, or in many, behind a few kilobytes."""
    size = 1024 * MIB // count
    zero = encode_batch([SimpleRecord(None, bytes(size), 0)] * count, codec=ZSTD)
    tracemalloc.start()
    seen = 0
    for piece in read_pieces(
        zero, 0, parse_header(zero), list[DecodedRecord], decompressed_bytes_max=16 * MIB
    ):
        seen += 1 if isinstance(piece, UnreadableRange) else len(piece)
        del piece
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == count
    assert peak < 80 * MIB
