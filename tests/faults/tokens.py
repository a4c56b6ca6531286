"""A valid request as the tokens it is written with, so that one of them can be made a lie.

A hostile frame is a valid one in which one number is wrong: a length, the count of an array,
of tags, the size of a tag.  `tokens_of` writes a message a second time, from its metadata and
independently of `sharegroup.wire.codec.encoder`, and keeps where each of these numbers stands;
`lies_about` gives what to put in place of one, and why no decoder may accept it.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from sharegroup.wire.codec.schema import EPOCH, MessageField, is_flexible_class, message_fields

INT_MAX = 2**31 - 1


class Kind(Enum):
    """What a token is."""

    CONTENT = "content"
    SHORT = "int16 length"
    LONG = "int32 length"
    COMPACT = "length plus one as a varint"
    TAG_COUNT = "number of tags"
    TAG = "tag"
    TAG_SIZE = "size of a tag"


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """Some bytes of a message and the field that they belong to."""

    kind: Kind
    raw: bytes
    path: str
    nullable: bool = False


def full_message(cls: type[Any]) -> Any:
    """An instance with everything in it: no null, one element in every array, every tag."""
    return cls(**{field.name: _full_value(field) for field in message_fields(cls)})


def tokens_of(message: Any, path: str = "") -> list[Token]:
    """The tokens of a message, in the order of the wire."""
    cls = type(message)
    tokens: list[Token] = []
    for field in message_fields(cls):
        if field.tag is None:
            tokens += _field_tokens(field, getattr(message, field.name), path)
    if is_flexible_class(cls):
        tokens += _tag_tokens(message, path)
    return tokens


def joined(tokens: list[Token]) -> bytes:
    return b"".join(token.raw for token in tokens)


def lies_about(token: Token, bytes_left: int) -> Iterator[tuple[str, bytes]]:
    """What must not be accepted in the token's place, each with a name.

    ``bytes_left`` follow the token in the frame: more elements than that cannot be there.
    """
    match token.kind:
        case Kind.SHORT:
            numbers = {"one more than is left": bytes_left + 1, "largest": 2**15 - 1}
            numbers |= {"minus two": -2, "most negative": -(2**15)}
            yield from _packed(">h", token, numbers, null=-1)
        case Kind.LONG:
            numbers = {"one more than is left": bytes_left + 1, "largest": INT_MAX}
            numbers |= {"minus two": -2, "most negative": -(2**31)}
            yield from _packed(">i", token, numbers, null=-1)
        case Kind.COMPACT:
            yield "one more than is left", uvarint(bytes_left + 2)
            yield "largest", uvarint(2**32 - 1)
            yield from _endless_varints()
            if not token.nullable:
                yield "null", b"\0"
        case Kind.TAG_COUNT:
            yield "more tags than there are bytes", uvarint(bytes_left + 1)
            yield "largest", uvarint(2**32 - 1)
            yield from _endless_varints()
        case Kind.TAG_SIZE:
            yield "one more than is left", uvarint(bytes_left + 1)
            yield "largest", uvarint(2**32 - 1)
            yield from _endless_varints()
        case Kind.TAG:
            yield from _endless_varints()
        case Kind.CONTENT:
            return


def uvarint(value: int) -> bytes:
    raw = bytearray()
    while value > 127:
        raw.append(value & 127 | 128)
        value >>= 7
    raw.append(value)
    return bytes(raw)


def _packed(
    layout: str, token: Token, numbers: dict[str, int], *, null: int
) -> Iterator[tuple[str, bytes]]:
    for name, number in numbers.items():
        yield name, struct.pack(layout, number)
    if not token.nullable:
        yield "null", struct.pack(layout, null)


def _endless_varints() -> Iterator[tuple[str, bytes]]:
    yield "a varint of six bytes", b"\x81\x80\x80\x80\x80\x00"
    yield "a varint of more than 32 bits", b"\xff\xff\xff\xff\x7f"


def _full_value(field: MessageField) -> Any:
    return (_full_element(field),) if field.is_array else _full_element(field)


def _full_element(field: MessageField) -> Any:
    if field.entity is not None:
        return full_message(field.entity)
    match field.kafka_type:
        case "bool":
            return True
        case "string":
            return "full"
        case "bytes" | "records":
            return b"bytes"
        case "uuid":
            return UUID(int=7)
        case "error_code":
            return ErrorCode.unknown_server_error
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=2)
        case "datetime_i64":
            return EPOCH + timedelta(milliseconds=2)
        case "float64":
            return 1.0
    return 1


def _field_tokens(field: MessageField, value: Any, path: str) -> list[Token]:
    path = f"{path}.{field.name}".lstrip(".")
    if not field.is_array:
        return _value_tokens(field, value, path, nullable=field.nullable)
    if value is None:
        return [_null_token(field, path, is_short=False)]
    tokens = [_length_token(field, len(value), path, is_short=False, nullable=field.nullable)]
    for element in value:
        tokens += _value_tokens(field, element, path + "[]", nullable=False)
    return tokens


def _value_tokens(field: MessageField, value: Any, path: str, *, nullable: bool) -> list[Token]:
    if field.entity is not None:
        if value is None:
            return [Token(Kind.CONTENT, b"\xff", path)]
        here = [Token(Kind.CONTENT, b"\1", path)] if nullable else []
        return here + tokens_of(value, path)
    if field.kafka_type in ("string", "bytes", "records"):
        if value is None:
            return [_null_token(field, path, is_short=field.kafka_type == "string")]
        raw = value.encode() if field.kafka_type == "string" else value
        is_short = field.kafka_type == "string"
        length = _length_token(field, len(raw), path, is_short=is_short, nullable=nullable)
        return [length, Token(Kind.CONTENT, raw, path)]
    return [Token(Kind.CONTENT, _fixed(field, value), path)]


def _length_token(
    field: MessageField, count: int, path: str, *, is_short: bool, nullable: bool
) -> Token:
    if field.compact:
        return Token(Kind.COMPACT, uvarint(count + 1), path, nullable)
    if is_short:
        return Token(Kind.SHORT, struct.pack(">h", count), path, nullable)
    return Token(Kind.LONG, struct.pack(">i", count), path, nullable)


def _null_token(field: MessageField, path: str, *, is_short: bool) -> Token:
    if field.compact:
        return Token(Kind.COMPACT, b"\0", path, nullable=True)
    raw = b"\xff" * (2 if is_short else 4)
    return Token(Kind.SHORT if is_short else Kind.LONG, raw, path, nullable=True)


def _fixed(field: MessageField, value: Any) -> bytes:
    match field.kafka_type:
        case "uuid":
            return bytes(16) if value is None else bytes(value.bytes)
        case "timedelta_i32":
            return struct.pack(">i", value // timedelta(milliseconds=1))
        case "timedelta_i64":
            return struct.pack(">q", value // timedelta(milliseconds=1))
        case "datetime_i64":
            return struct.pack(">q", (value - EPOCH) // timedelta(milliseconds=1))
    letters = {"bool": "?", "error_code": "h", "float64": "d"}
    letters |= {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}
    letters |= {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q"}
    return struct.pack(">" + letters[str(field.kafka_type)], value)


def _tag_tokens(message: Any, path: str) -> list[Token]:
    tagged = [field for field in message_fields(type(message)) if field.tag is not None]
    present = [field for field in tagged if getattr(message, field.name) != field.default]
    tokens = [Token(Kind.TAG_COUNT, uvarint(len(present)), f"{path}.tags".lstrip("."))]
    for field in sorted(present, key=lambda field: field.tag or 0):
        where = f"{path}.{field.name}".lstrip(".")
        plain = dataclasses.replace(field, nullable=False)
        inside = _field_tokens(plain, getattr(message, field.name), path)
        tokens += (
            Token(Kind.TAG, uvarint(field.tag or 0), where),
            Token(Kind.TAG_SIZE, uvarint(len(joined(inside))), where),
            *inside,
        )
    return tokens
