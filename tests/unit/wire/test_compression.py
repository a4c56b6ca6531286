"""Every codec gives back what went in, talks to others, and stops at its limit."""

from __future__ import annotations

import gzip
import tracemalloc

import cramjam
import pytest
from aiokafka import codec as theirs
from hypothesis import given, strategies as st

from sharegroup.errors import CorruptMessage, UnsupportedCompressionType
from sharegroup.wire.batches.compression import CODECS, compress, decompress

PACKED = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TEXT = b"nine flights out of ten leave on time; " * 5_000
MEGABYTE = 2**20


def test_codecs_have_kafkas_numbers():
    assert CODECS == {"none": 0, **PACKED}


@pytest.mark.parametrize("name", CODECS)
@given(payload=st.binary(max_size=2_000))
def test_payload_survives_a_round_trip(name, payload):
    packed = compress(CODECS[name], memoryview(payload))
    assert decompress(CODECS[name], memoryview(packed), bytes_max=2_000) == payload


@pytest.mark.parametrize("name", PACKED)
def test_large_payload_is_compressed_and_survives_a_round_trip(name):
    packed = compress(PACKED[name], TEXT)
    assert len(packed) < len(TEXT) / 10
    assert decompress(PACKED[name], packed, bytes_max=len(TEXT)) == TEXT


@pytest.mark.parametrize("name", PACKED)
def test_compression_is_compatible_with_other_libraries(name):
    assert getattr(theirs, f"{name}_decode")(compress(PACKED[name], TEXT)) == TEXT
    their_packed = getattr(theirs, f"{name}_encode")(TEXT)
    assert decompress(PACKED[name], their_packed, bytes_max=len(TEXT)) == TEXT


def test_raw_snappy_block_is_read():
    packed = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(PACKED["snappy"], packed, bytes_max=len(TEXT)) == TEXT


def test_gzip_of_several_members_is_read():
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(PACKED["gzip"], packed, bytes_max=7) == b"one two"
    with pytest.raises(CorruptMessage, match="more than 6 bytes"):
        decompress(PACKED["gzip"], packed, bytes_max=6)


@given(parts=st.lists(st.binary(max_size=200_000), max_size=5))
def test_gzip_members_of_any_size_are_read(parts):
    packed = b"".join(gzip.compress(part) for part in parts)
    assert decompress(PACKED["gzip"], packed, bytes_max=1_000_000) == b"".join(parts)


def test_gzip_output_of_several_pieces_is_read():
    payload = bytes(5 * MEGABYTE // 2) + bytes(range(256)) * 8_192
    packed = gzip.compress(payload) + gzip.compress(b"end")
    assert decompress(PACKED["gzip"], packed, bytes_max=5 * MEGABYTE) == payload + b"end"


def test_gzip_of_many_empty_members_is_refused_in_linear_time():
    """The attack: 1 MB of empty members took 2.1 s, because zlib copied the rest for each."""
    packed = gzip.compress(b"") * 50_000
    with pytest.raises(CorruptMessage, match="gzip: more than 1000 members"):
        decompress(PACKED["gzip"], packed, bytes_max=MEGABYTE)


@pytest.mark.parametrize("block", [b"\0", b"\1\0x"], ids=["empty", "of one byte"])
def test_snappy_of_many_small_blocks_is_refused(block):
    packed = compress(PACKED["snappy"], b"") + (len(block).to_bytes(4, "big") + block) * 1_000
    with pytest.raises(CorruptMessage, match="snappy: more blocks than one for each 4096"):
        decompress(PACKED["snappy"], packed, bytes_max=MEGABYTE)


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("zstd", bytes.fromhex("28b52ffd2000010000")),
        ("zstd", bytes.fromhex("28b52ffd0088010000")),
        ("lz4", bytes(cramjam.lz4.compress(b""))),
    ],
    ids=["zstd", "zstd with a window of 128 MB", "lz4"],
)
def test_many_empty_frames_are_read(name, frame):
    skippable = bytes.fromhex("502a4d1800000000")
    assert decompress(PACKED[name], frame * 50_000, bytes_max=MEGABYTE) == b""
    assert decompress(PACKED[name], frame + skippable * 50_000, bytes_max=MEGABYTE) == b""


@pytest.mark.parametrize("name", PACKED)
@given(noise=st.binary(max_size=300), cut=st.integers(0, 2_000), flip=st.integers(0, 10**6))
def test_damaged_payload_gives_an_error_or_stays_within_the_limit(name, noise, cut, flip):
    packed = bytearray(compress(PACKED[name], TEXT[:10_000] + noise))
    packed[flip % len(packed)] ^= 1 + flip % 255
    for damaged in (packed, packed[:cut], packed + noise):
        try:
            output = decompress(PACKED[name], bytes(damaged), bytes_max=12_000)
        except CorruptMessage:
            continue
        assert len(output) <= 12_000


@pytest.mark.parametrize("name", PACKED)
def test_limit_is_exact(name):
    packed = compress(PACKED[name], TEXT)
    with pytest.raises(CorruptMessage, match=f"more than {len(TEXT) - 1} bytes"):
        decompress(PACKED[name], packed, bytes_max=len(TEXT) - 1)


@pytest.mark.parametrize("name", PACKED)
def test_bomb_takes_no_more_memory_than_the_limit(name):
    bomb = compress(PACKED[name], bytes(64 * MEGABYTE))
    tracemalloc.start()
    with pytest.raises(CorruptMessage):
        decompress(PACKED[name], bomb, bytes_max=MEGABYTE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # zlib's next piece of output comes beside what is there: 2.2 MiB.  The bomb has 64.
    assert peak < 8 * MEGABYTE


@pytest.mark.parametrize("name", PACKED)
def test_damaged_payload_is_refused(name):
    packed = bytearray(compress(PACKED[name], TEXT))
    for payload in (packed[: len(packed) // 2], b"?" * 40):
        with pytest.raises(CorruptMessage):
            decompress(PACKED[name], bytes(payload), bytes_max=len(TEXT))


def test_snappy_block_that_claims_gigabytes_is_refused_unallocated():
    claim = b"\xff\xff\xff\xff\x07" + b"abc"
    with pytest.raises(CorruptMessage, match="8 bytes claim to decompress to 2147483647"):
        decompress(PACKED["snappy"], claim, bytes_max=2**31)


def test_snappy_frame_with_wrong_block_lengths_is_refused():
    header = compress(PACKED["snappy"], b"")
    for length in (0, 5, 2**31, 2**32 - 1):
        with pytest.raises(CorruptMessage, match="snappy: block of"):
            decompress(PACKED["snappy"], header + length.to_bytes(4, "big") + b"abcd", bytes_max=99)


def test_zstd_frame_that_asks_for_a_huge_window_is_refused():
    # Frame descriptor 0, then window descriptor: exponent 31 (2 TB), mantissa 0.
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\xf8" + b"\x01\x00\x00"
    with pytest.raises(CorruptMessage, match="zstd: window of 2199023255552 bytes"):
        decompress(PACKED["zstd"], frame, bytes_max=MEGABYTE)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec):
    with pytest.raises(UnsupportedCompressionType, match=f"found {codec}"):
        compress(codec, b"x")
    with pytest.raises(UnsupportedCompressionType, match=f"found {codec}"):
        decompress(codec, b"x", bytes_max=9)
