"""Odd record batches from a seed: valid ones that few producers write, and some that Java refuses.

    for batch in odd_batches(7, count=1000):
        batch.data      the bytes, from base offset `batch.base_offset` on

A batch varies in all that its format leaves open: lengths of numbers, surplus bits of numbers,
attribute bits, timestamps of every kind, gaps between offsets, sizes, nulls, names of headers that
are no UTF-8, codecs and their framings.  Every fifth batch has a fault that makes it unreadable.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import NamedTuple

import cramjam
from crc32c import crc32c

from sharegroup.wire.batches.compression import SNAPPY, compress

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
FAULT_SHARE = 0.2
MANY_HEADERS = 100_000
MANY_RECORDS = 3_000
PRODUCED_TIMES = (-1, 0, 1, -2, 1_700_000_000_000, -62_135_596_800_000, 2**42)
TIMES = (*PRODUCED_TIMES, -(2**63), 2**63 - 1)
NAMES = (
    b"h", b"", b"trace", "grün".encode(), b"\xff", b"a\xffb", b"\xed\xa0\x80", b"\xed\xb0\x80x",
    b"\xed\xa0", b"\xc0\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80", b"\xe0\x80\x80", "\U0001f600".encode(), b"\0", b"\xef\xbf\xbd",
    b"__sharegroup.origin.topic", b"x" * 300,
    b"\xfe\xfe\xff\xff", b"\xf1\x80\x80", b"\xed\xa0\x80\xed\xb0\x80",
)  # fmt: skip


class OddBatch(NamedTuple):
    """One batch and what was done to it."""

    data: bytes
    base_offset: int
    end_offset: int
    fault: str | None
    """The name of the fault; None for a valid batch."""


class OddRecord(NamedTuple):
    """The fields of a record to write; sizes of -1 and below mean null."""

    time_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def odd_batches(
    seed: int, *, count: int, base_offset: int = 0, by_producer: bool = False
) -> Iterator[OddBatch]:
    """Yield ``count`` batches with ascending offsets; each is the same for the same seed.

    Batches ``by_producer`` have headers that a broker takes from a producer.
    """
    for number in range(count):
        dice = random.Random(f"{seed}/{number}")
        batch = _Odd(dice, base_offset, by_producer=by_producer).batch()
        yield batch
        base_offset = batch.end_offset


class _Odd:
    def __init__(self, dice: random.Random, base_offset: int, *, by_producer: bool) -> None:
        self._dice = dice
        self._base_offset = base_offset
        self._by_producer = by_producer
        self._times = PRODUCED_TIMES if by_producer else TIMES
        # Odd numbers make a batch that only our slower decoder reads, so most have none.
        self._is_strange = dice.random() < 0.5

    def batch(self) -> OddBatch:
        dice = self._dice
        fault = dice.choice(FAULTS) if dice.random() < FAULT_SHARE else None
        if self._by_producer and fault in HEADER_FAULTS:
            fault = None
        records = self._records()
        if fault is not None and not records:
            records = [OddRecord(0, 0, b"k", b"v", [])]
        encoded = [self._record(record) for record in records]
        count = len(encoded)
        if fault in RECORD_FAULTS:
            place = dice.randrange(count)
            encoded[place] = self._faulty(fault, records[place])
        body = b"".join(encoded)
        if fault == "trailing bytes":
            body += b"\0\0"
        if fault == "one record more":
            count += 1
        if fault == "one record less":
            count -= 1
            if not count:
                count, body = 1, body + body  # A batch of no records has no fault in its body.
        if fault == "negative count":
            count = -1
        last_delta = max((record.offset_delta for record in records), default=-1)
        if not self._by_producer:
            last_delta += dice.choice((0, 0, 0, 1, 5, 1000)) + (not records)
        return self._sealed(body, count=count, last_delta=last_delta, fault=fault)

    def _sealed(self, body: bytes, *, count: int, last_delta: int, fault: str | None) -> OddBatch:
        dice = self._dice
        codec = dice.choice((0, 0, 1, 2, 3, 4))
        if fault in ("unknown codec", "cut compression"):
            codec = dice.randrange(1, 5)
        body = self._compressed(codec, body)
        if fault == "cut compression":
            body = body[: len(body) * 2 // 3]
        if fault == "unknown codec":
            codec = dice.randrange(5, 8)
        attributes = codec
        for bit in (LOG_APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON):
            attributes |= bit if dice.random() < 0.2 else 0
        if fault is None and dice.random() < 0.05:
            attributes |= CONTROL
        producer = dice.choice((-1, 0, 7, 2**62)), dice.choice((-1, 0, 9)), dice.choice((-1, 0, 3))
        if self._by_producer:
            attributes, producer = codec, (-1, -1, -1)
        times = dice.choice(self._times), dice.choice(self._times)
        checked = struct.pack(">hiqqqhii", attributes, last_delta, *times, *producer, count)
        checked += body
        crc = crc32c(checked) ^ (fault == "checksum")
        epoch = dice.choice((-1, 0, 5))
        head = struct.pack(">qiibI", self._base_offset, 9 + len(checked), epoch, 2, crc)
        end = self._base_offset + last_delta + 1
        return OddBatch(head + checked, self._base_offset, end, fault)

    def _compressed(self, codec: int, body: bytes) -> bytes:
        if codec == SNAPPY and self._dice.random() < 0.5:
            return bytes(cramjam.snappy.compress_raw(body))  # As librdkafka does.
        return compress(codec, body)

    def _records(self) -> list[OddRecord]:
        dice = self._dice
        count = dice.choice((int(self._by_producer), 1, 1, 1, 2, 3, 5, 20))
        if dice.random() < 0.005:
            count = MANY_RECORDS
        records, delta = [], -1
        for _ in range(count):
            delta += 1 if self._by_producer else dice.choice((1, 1, 1, 1, 2, 100))
            headers = self._headers() if count < MANY_RECORDS else []
            records.append(
                OddRecord(dice.choice((0, 1, delta, -5, *self._times)), delta, self._content(),
                          self._content(large=count < 5), headers)
            )  # fmt: skip
        return records

    def _headers(self) -> list[tuple[bytes, bytes | None]]:
        dice = self._dice
        count = dice.choice((0, 0, 0, 1, 1, 2, 3, 16, 17, 40))
        if dice.random() < 0.0005:
            return [(b"h", b"")] * MANY_HEADERS
        names = NAMES if self._is_strange else NAMES[:4]
        return [(dice.choice(names), self._content()) for _ in range(count)]

    def _content(self, *, large: bool = False) -> bytes | None:
        dice = self._dice
        size = dice.choice((-1, 0, 0, 1, 5, 63, 64, 200))
        if large and dice.random() < 0.05:
            size = dice.choice((8191, 8192, 70_000, 300_000, 900_000))
        if size < 0:
            return None
        return dice.randbytes(size) if dice.random() < 0.3 else dice.randbytes(1) * size

    def _record(self, record: OddRecord) -> bytes:
        return self._sized(self._fields(record))

    def _fields(self, record: OddRecord, *, header_count: int | None = None) -> bytes:
        dice = self._dice
        attributes = dice.choice((0, 0, 1, 0x7F, 0x80, 0xFF)) if self._is_strange else 0
        if record.key is not None and len(record.key) == 1:
            attributes &= 0x7F  # The compiled codec may misread it: ADR 0033, «What is left».
        count = len(record.headers) if header_count is None else header_count
        parts = [
            bytes([attributes]),
            self._number(record.time_delta, 64),
            self._number(record.offset_delta, 32, surplus=False),
            self._field(record.key),
            self._field(record.value),
            self._number(count, 32),
        ]
        for name, content in record.headers:
            parts += (self._number(len(name), 32), name, self._field(content))
        return b"".join(parts)

    def _sized(self, fields: bytes, *, more: int = 0) -> bytes:
        return self._number(len(fields) + more, 32) + fields

    def _field(self, content: bytes | None) -> bytes:
        if content is None:
            null = self._dice.choice((-1, -2, -(2**31))) if self._is_strange else -1
            return self._number(null, 32)
        return self._number(len(content), 32) + content

    def _number(self, number: int, bits: int, *, surplus: bool = True) -> bytes:
        """The number in zigzag, of a strange batch sometimes longer than needed."""
        octets = bytearray(zigzag(number, bits))
        longest = 5 if bits == 32 else 10
        if self._is_strange and self._dice.random() < 0.1:
            octets[-1] |= 0x80
            octets += bytes([0x80] * self._dice.randrange(longest - len(octets) + 1))
            octets = octets[:longest]
            octets[-1] &= 0x7F
            if surplus and len(octets) == longest and self._dice.random() < 0.3:
                octets[-1] |= 0x70 if bits == 32 else 0x7E  # Java drops what is above the width.
        return bytes(octets)

    def _faulty(self, fault: str, record: OddRecord) -> bytes:
        """Return the record with a fault that makes its batch unreadable."""
        fields = self._fields(record)
        match fault:
            case "record too long":
                return self._sized(fields, more=1)
            case "record too short":
                return self._sized(fields, more=-1)
            case "length zero":
                return zigzag(0, 32) + fields
            case "header count below zero":
                return self._sized(self._fields(record._replace(headers=[]), header_count=-1))
            case "too many headers":
                return self._sized(self._fields(record, header_count=2**31 - 1))
            case "header without a name":
                broken = self._fields(record._replace(headers=[]), header_count=1)
                return self._sized(broken + zigzag(-1, 32) + zigzag(-1, 32))
            case "key too long":
                head = b"\0" + zigzag(0, 64) + zigzag(record.offset_delta, 32)
                return self._sized(head + zigzag(2**30, 32) + b"kv\0")
            case "endless number":
                return self._sized(b"\0" + b"\xff" * 11 + fields)
        raise AssertionError(fault)


RECORD_FAULTS = (
    "record too long", "record too short", "length zero", "header count below zero",
    "too many headers", "header without a name", "key too long", "endless number",
)  # fmt: skip
HEADER_FAULTS = (
    "checksum", "unknown codec", "one record more", "one record less", "negative count",
)  # fmt: skip
FAULTS = (*RECORD_FAULTS, *HEADER_FAULTS, "cut compression", "trailing bytes")


def zigzag(number: int, bits: int) -> bytes:
    """As records write numbers: zigzag, seven bits to a byte."""
    value = ((number << 1) ^ (number >> bits - 1)) & ((1 << bits) - 1)
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*octets, value])
