"""Protobuf messages within each other, and small values with many fields, are bounded."""

from __future__ import annotations

import base64
import resource
from typing import Any

import pytest

pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2

from sharegroup.schema_registry.decoding import (
    Decode,
    FetchedSchema,
    UnreadableValue,
    protobuf_decode,
)

OPTIONAL, REPEATED, INT64, STRING, MESSAGE = 1, 3, 3, 9, 11
FIRST = b"\0"
"""The path to the first message type of the file."""


def decode_of(*messages: tuple[str, list[tuple[int, int | str]]]) -> Decode:
    """The function for the first of these messages, with fields of a label and a type."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3")
    for name, fields in messages:
        message = file.message_type.add(name=name)
        for number, (label, kind) in enumerate(fields, 1):
            field: Any = message.field.add(name=f"f{number}", number=number, label=label)
            field.type = MESSAGE if isinstance(kind, str) else kind
            if isinstance(kind, str):
                field.type_name = f".{kind}"
    return protobuf_decode(FetchedSchema(base64.b64encode(file.SerializeToString()).decode(), {}))


def sized(tag: int, content: bytes) -> bytes:
    size, length = b"", len(content)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([tag]) + size + bytes([length]) + content


@pytest.mark.parametrize(
    ("depth", "is_read"), [(20, True), (99, True), (101, False), (9_000, False)]
)
@pytest.mark.parametrize("label", [OPTIONAL, REPEATED])
def test_messages_are_a_hundred_deep(label: int, depth: int, is_read: bool) -> None:
    decode = decode_of(("Node", [(label, "Node")]))
    payload = b""
    for _ in range(depth):
        payload = sized(0x0A, payload)
    if is_read:
        assert set(decode(FIRST + payload)) == {"f1"}
    else:
        with pytest.raises(Exception, match="Error parsing message"):
            decode(FIRST + payload)


WIDE = ("Wide", [(OPTIONAL, INT64)] * 1_000)


@pytest.mark.slow
def test_small_value_with_many_absent_fields_is_unreadable() -> None:
    decode = decode_of(("M", [(REPEATED, "Wide")]), WIDE)
    assert len(decode(FIRST + b"\x0a\0" * 900)["f1"]) == 900
    with pytest.raises(UnreadableValue, match="up to 1000000 fields and 4 for each byte"):
        decode(FIRST + b"\x0a\0" * 2_000)


def test_fields_are_counted_before_the_library_needs_memory_for_them() -> None:
    """The library takes 8 kB for each of these messages of two bytes: four gigabytes."""
    decode = decode_of(("M", [(REPEATED, "Wide")]), WIDE)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnreadableValue, match="found more"):
        decode(FIRST + b"\x0a\0" * 500_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_large_value_is_read_as_before() -> None:
    fields = [(REPEATED, "Wide"), (OPTIONAL, STRING), (OPTIONAL, INT64)]
    decode = decode_of(("M", fields), WIDE)
    filled = b"\x08\x01" + b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    payload = sized(0x0A, filled) + sized(0x12, b"x" * 200_000) + b"\x18\x05"
    payload += b"\x21" + b"12345678" + b"\x2d" + b"1234"  # Fields that the type lacks.
    found = decode(FIRST + payload)
    assert (len(found["f2"]), found["f3"]) == (200_000, 5)
    assert (found["f1"][0]["f1"], found["f1"][0]["f2"]) == (1, -1)


@pytest.mark.parametrize(
    ("end", "text"),
    [(b"\x18", "cut off"), (b"\x18" + b"\xff" * 11, "too large"), (b"\x1b", "wire type 3")],
)
def test_large_value_of_another_form_is_unreadable(end: bytes, text: str) -> None:
    decode = decode_of(("M", [(REPEATED, "Wide"), (OPTIONAL, STRING)]), WIDE)
    with pytest.raises(UnreadableValue, match=text):
        decode(FIRST + sized(0x12, b"x" * 200_000) + end)


def test_large_value_may_not_be_deeper_either() -> None:
    decode = decode_of(("Node", [(REPEATED, "Node"), (OPTIONAL, STRING), (OPTIONAL, "Wide")]), WIDE)
    payload = b""
    for _ in range(300):
        payload = sized(0x0A, payload)
    with pytest.raises(UnreadableValue, match="100 deep"):
        decode(FIRST + sized(0x12, b"x" * 200_000) + payload)
