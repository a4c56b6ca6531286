"""Decoding what a peer sent: a Python function compiled from each message class.

kio writes messages, but its reader trusts them: a claimed array length of 2**32-1 aborts the
process.  Here a message class is turned into the source of one function (`decoder_source`),
compiled when first used, that trusts nothing:

- a count is compared with the bytes left, each element taken at its smallest, before a loop
  starts; a length is compared with the bytes left before a slice is made;
- all elements of a message together are limited (``ELEMENTS_MAX``), so that a large frame of
  one-byte elements cannot become gigabytes of objects;
- tags must ascend; unknown ones are skipped; known ones must fill the size they announce;
- unknown error codes stay plain ints, as a newer peer may have codes that kio lacks.

Whatever is wrong raises DecodeError, and nothing else.  Bytes after the message are no error
here: the position of the first one is returned.

Where a message is wrong is found out only when it is: the compiled functions carry no path;
the traceback's line numbers lead back to the fields (`_path`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, TypeVar

from sharegroup.wire.decoder_source import Malformed, Owner, decoder_source
from sharegroup.wire.schema import message_fields

ELEMENTS_MAX = 1_000_000
"""Array elements of one message, those of nested arrays included; 32 int8 count as one."""

SMALL_BYTES = 16 * 1024
"""Buffers up to this size are made bytes first: slices of bytes decode faster than views."""

Message = TypeVar("Message")
Buffer = bytes | bytearray | memoryview
Records = Callable[[Buffer], Any]
"""What becomes of a slice with records: ``bytes``, ``bytearray``, or ``memoryview`` (no copy)."""


class DecodeError(Exception):
    """The bytes are no such message; the text has field, position and what was expected."""


def decode(
    cls: type[Message],
    buffer: Buffer,
    position: int = 0,
    *,
    records: Records = bytes,
    elements_max: int = ELEMENTS_MAX,
) -> tuple[Message, int]:
    """The message that starts at ``position``, and the position after it."""
    assert 0 <= position <= len(buffer)
    read = _readers.get((cls, records)) or _compiled(cls, records)
    if type(buffer) is memoryview and len(buffer) <= SMALL_BYTES:
        buffer = bytes(buffer)
    try:
        message, end = read(buffer, position, len(buffer), [elements_max])
    except (Malformed, struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise DecodeError(_explain(cls, error)) from None
    return message, end


def prepare(cls: type[Any], *, records: Records = bytes) -> None:
    """Compile now what the first message of this class would have to wait for."""
    _compiled(cls, records)


Read = Callable[[Buffer, int, int, list[int]], tuple[Any, int]]
"""A compiled function: (buffer, position, end, [elements left]) to message and position."""

_readers: dict[tuple[type[Any], Records], Read] = {}

_owners: dict[CodeType, list[Owner]] = {}
"""For each compiled function the field that each of its lines belongs to."""


def _compiled(cls: type[Any], records: Records) -> Read:
    """The function that reads ``cls``, made when first asked for."""
    known = _readers.get((cls, records))
    if known is not None:
        return known
    source, names, owners = decoder_source(cls)
    names["records_of"] = records
    for field in message_fields(cls):
        if field.entity is not None:
            names[f"read_{field.name}"] = _compiled(field.entity, records)
    code = compile(source, f"<decoder of {cls.__module__}.{cls.__qualname__}>", "exec")
    exec(code, names)  # noqa: S102  The source is made of schema field names alone.
    read: Read = names["read"]
    _owners[names["read"].__code__] = owners
    _readers[cls, records] = read
    return read


def _explain(cls: type[Any], error: Exception) -> str:
    path, position = _path(error.__traceback__)
    match error:
        case Malformed():
            problem = str(error)
        case UnicodeDecodeError():
            problem = "expected UTF-8"
        case OverflowError():
            problem = "time out of range"
        case _:
            problem = "expected more bytes, the message ends"
    return f"{cls.__name__}.{path} at byte {position}: {problem}"


def _path(trace: TracebackType | None) -> tuple[str, int]:
    """The field that was being read, as ``topics[2].partitions``, and where."""
    path = []
    position = -1
    while trace is not None:
        owners = _owners.get(trace.tb_frame.f_code)
        if owners is not None:
            name, in_loop = owners[trace.tb_lineno - 1]
            found = trace.tb_frame.f_locals
            path.append(f"{name}[{found['i']}]" if in_loop else name)
            position = found["p"]
        trace = trace.tb_next
    return ".".join(path), position
