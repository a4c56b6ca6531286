"""Every codec gives back what went in, talks to others, and stops at its limit."""

from __future__ import annotations

import gzip
import tracemalloc

import cramjam
import pytest
from aiokafka import codec as theirs
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.errors import CorruptMessage, UnsupportedCompressionType
from sharegroup.wire.compression import CODECS, compress, decompress

PACKED = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TEXT = b"nine flights out of ten leave on time; " * 5_000
MEGABYTE = 2**20


def test_codecs_have_kafkas_numbers():
    assert CODECS == {"none": 0, **PACKED}


@pytest.mark.parametrize("name", CODECS)
@given(payload=st.binary(max_size=2_000))
def test_payload_comes_back(name, payload):
    packed = compress(CODECS[name], memoryview(payload))
    assert decompress(CODECS[name], memoryview(packed), bytes_max=2_000) == payload


@pytest.mark.parametrize("name", PACKED)
def test_large_payload_comes_back_and_is_smaller_on_the_way(name):
    packed = compress(PACKED[name], TEXT)
    assert len(packed) < len(TEXT) / 10
    assert decompress(PACKED[name], packed, bytes_max=len(TEXT)) == TEXT


@pytest.mark.parametrize("name", PACKED)
def test_others_read_what_we_write_and_we_what_they_write(name):
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
    # zlib puts the pieces of its output together once, which takes twice the limit.
    assert peak < 2.5 * MEGABYTE


@pytest.mark.parametrize("name", PACKED)
def test_damaged_payload_is_refused(name):
    packed = bytearray(compress(PACKED[name], TEXT))
    for payload in (packed[: len(packed) // 2], b"?" * 40):
        with pytest.raises(CorruptMessage):
            decompress(PACKED[name], bytes(payload), bytes_max=len(TEXT))


def test_snappy_block_that_claims_gigabytes_is_refused_before_anything_is_made():
    claim = b"\xff\xff\xff\xff\x07" + b"abc"
    with pytest.raises(CorruptMessage, match="8 bytes claim to be 2147483647"):
        decompress(PACKED["snappy"], claim, bytes_max=2**31)


def test_snappy_frame_whose_blocks_lie_is_refused():
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
def test_codec_that_does_not_exist_is_refused(codec):
    with pytest.raises(UnsupportedCompressionType, match=f"found {codec}"):
        compress(codec, b"x")
    with pytest.raises(UnsupportedCompressionType, match=f"found {codec}"):
        decompress(codec, b"x", bytes_max=9)
