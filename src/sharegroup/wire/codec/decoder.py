"""Decoding of messages from a peer: a Python function is compiled from each message class.

kio writes messages, but its reader trusts them: a claimed array length of 2**32-1 aborts the
process. Here a message class is turned into the source of one function (`decoder_source`). The
function is compiled when it is first used, and it trusts nothing:

- a count is compared with the bytes left, each element taken at its smallest, before a loop starts;
  a length is compared with the bytes left before a slice is made;
- all elements of a message together are limited (``ELEMENTS_MAX``), so a large frame of one-byte
  elements cannot become gigabytes of objects;
- tags must ascend; unknown ones are skipped; known ones must fill the size they announce;
- unknown error codes stay plain ints, because a newer peer may have codes that kio lacks.

All errors are DecodeErrors. Bytes after the message are no error here: the position of the first
one is returned.

The path of an error is found only if one occurs: the compiled functions carry no path, and the
traceback's line numbers lead back to the fields (`_path`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, TypeVar

from sharegroup.steps import Steps
from sharegroup.wire.codec.decoder_source import Malformed, decoder_source
from sharegroup.wire.codec.schema import Owner, has_arrays, message_fields

ELEMENTS_MAX = 1_000_000
"""Number of array elements of one message, with those of nested arrays; 32 int8 count as one."""

SMALL_BYTES = 16 * 1024
"""Size up to which buffers are first copied to bytes, because slices of bytes decode faster."""

Message = TypeVar("Message")
Buffer = bytes | bytearray | memoryview
Records = Callable[[Buffer], Any]
"""The type made of slices of records: ``bytes``, ``bytearray``, or ``memoryview`` (no copy)."""


DECODING_ERRORS = (Malformed, struct.error, IndexError, UnicodeDecodeError, OverflowError)


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
    """Return the message that starts at ``position``, and the position after it."""
    assert 0 <= position <= len(buffer)
    read = _readers.get((cls, records)) or _compiled(cls, records)
    if type(buffer) is memoryview and len(buffer) <= SMALL_BYTES:
        buffer = bytes(buffer)
    try:
        # The budget is a list, because the functions of all nested structs count down one number.
        message, end = read(buffer, position, len(buffer), [elements_max])
    except DECODING_ERRORS as error:
        raise DecodeError(_explain(cls, error)) from None
    return message, end


def decode_steps(
    cls: type[Message],
    buffer: Buffer,
    position: int = 0,
    *,
    records: Records = bytes,
    elements_max: int = ELEMENTS_MAX,
) -> Steps[Message]:
    """Return the message that starts at ``position``, in steps."""
    assert 0 <= position <= len(buffer)
    read = _step_readers.get((cls, records)) or _compiled_steps(cls, records)
    try:
        message, _ = yield from read(buffer, position, len(buffer), [elements_max])
    except DECODING_ERRORS as error:
        raise DecodeError(_explain(cls, error)) from None
    return message  # type: ignore[no-any-return]  # The compiled function is untyped.


def prepare(cls: type[Any], *, records: Records = bytes) -> None:
    """Compile the decoder now, so the first message of this class need not wait for it."""
    _compiled(cls, records)


Read = Callable[[Buffer, int, int, list[int]], tuple[Any, int]]
"""A compiled function: (buffer, position, end, [elements left]) to message and position."""

_readers: dict[tuple[type[Any], Records], Read] = {}

ReadSteps = Callable[[Buffer, int, int, list[int]], Steps[tuple[Any, int]]]

_step_readers: dict[tuple[type[Any], Records], ReadSteps] = {}

_owners: dict[CodeType, list[Owner]] = {}
"""The field that each line of a compiled function belongs to."""


def _compiled(cls: type[Any], records: Records) -> Read:
    """Return the function that reads ``cls``; compile it on first use."""
    known = _readers.get((cls, records))
    if known is not None:
        return known
    source, names, owners = decoder_source(cls)
    names["records_of"] = records
    for field in message_fields(cls):
        if field.entity is not None:
            # Ends, because no struct of Kafka's schemas contains itself.
            names[f"read_{field.name}"] = _compiled(field.entity, records)
    code = compile(source, f"<decoder of {cls.__module__}.{cls.__qualname__}>", "exec")
    exec(code, names)  # noqa: S102  The source is made of schema field names alone.
    read: Read = names["read"]
    _owners[names["read"].__code__] = owners
    _readers[cls, records] = read
    return read


def _compiled_steps(cls: type[Any], records: Records) -> ReadSteps:
    """Return the generator function that reads ``cls`` in steps; compile it on first use."""
    known = _step_readers.get((cls, records))
    if known is not None:
        return known
    source, names, owners = decoder_source(cls, in_steps=True)
    names["records_of"] = records
    for field in message_fields(cls):
        if field.entity is not None:
            compiled = _compiled_steps if has_arrays(field.entity) else _compiled
            # A struct without arrays has a limited length, so a generator for each would only cost
            # time.
            names[f"read_{field.name}"] = compiled(field.entity, records)
    code = compile(source, f"<decoder in steps of {cls.__module__}.{cls.__qualname__}>", "exec")
    exec(code, names)  # noqa: S102  The source is made of schema field names alone.
    read: ReadSteps = names["read"]
    _owners[names["read"].__code__] = owners
    _step_readers[cls, records] = read
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
    """Return the field that was being read, as ``topics[2].partitions``, and the position."""
    path = []
    position = -1
    while trace is not None:
        owners = _owners.get(trace.tb_frame.f_code)
        if owners is not None:
            name, in_loop = owners[trace.tb_lineno - 1]
            frame_locals = trace.tb_frame.f_locals
            path.append(f"{name}[{frame_locals['i']}]" if in_loop else name)
            position = frame_locals["p"]
        trace = trace.tb_next
    return ".".join(path), position
