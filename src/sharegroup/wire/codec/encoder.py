"""Encoding of messages: a Python function is compiled from each message class.

The counterpart of `decoder`, built in the same way from the same metadata (`encoder_source`). kio's
writers take 16 to 40 us for a share fetch message, because they call a function for every number,
and they refuse unknown error codes. These functions take a fifth of that time and give the same
bytes, which a test checks for every message class.

Frames are lists of chunks: the size, the header and everything small are one piece; records stay
the objects that the caller gave. A message that cannot be written (a string in place of a number,
null where it is not allowed) raises EncodeError with the field's path, because that is a mistake in
our own program.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

from sharegroup.steps import Steps
from sharegroup.wire.codec.apis import response_header_version
from sharegroup.wire.codec.encoder_source import encoder_source
from sharegroup.wire.codec.headers import encode_request_header
from sharegroup.wire.codec.schema import Owner, has_arrays, message_fields

Chunk = bytes | bytearray | memoryview

_pack_size = struct.Struct(">i").pack
_pack_response_0 = struct.Struct(">ii").pack
_pack_response_1 = struct.Struct(">iiB").pack


PARTS_MAX = 4_096
"""Number of pieces of a message that are joined at the next pause."""

ENCODING_ERRORS = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


class EncodeError(Exception):
    """The message does not fit its class; the text has the field and the problem."""


def encode(message: Any) -> bytes:
    """Return the message alone, without header and size."""
    parts, _ = _parts(message)
    return b"".join(parts)


def encode_response(correlation_id: int, message: Any) -> bytes:
    """Return a response frame as one piece: size, header, message."""
    return b"".join(encode_response_chunks(correlation_id, message))


def encode_response_chunks(correlation_id: int, message: Any) -> list[Chunk]:
    """Return a response frame for ``writelines``; records are not copied."""
    parts, large = _parts(message)
    return _framed(correlation_id, message, parts, large)


def _framed(correlation_id: int, message: Any, parts: list[Chunk], large: list[int]) -> list[Chunk]:
    if large:
        return _joined(_head(correlation_id, message, sum(map(len, parts))), parts, large)
    body = b"".join(parts)
    return [_head(correlation_id, message, len(body)) + body]


def _head(correlation_id: int, message: Any, size: int) -> bytes:
    """Return the length and the header of a response frame for a message of ``size`` bytes."""
    if response_header_version(message.__api_key__, message.__version__) == 1:
        return _pack_response_1(size + 5, correlation_id, 0)
    return _pack_response_0(size + 4, correlation_id)


def encode_response_steps(correlation_id: int, message: Any) -> Steps[list[Chunk]]:
    """Do `encode_response_chunks` in steps."""
    parts: list[Chunk] = []
    large: list[int] = []
    cls = type(message)
    try:
        write = _step_writers.get(cls) or _compiled_steps(cls)
        for _ in write(message, parts, large):
            # Not behind records: ``large`` has indexes of pieces, which a join would make wrong.
            if len(parts) > PARTS_MAX and not large:
                parts[:] = (b"".join(parts),)  # In place, because the functions hold the list.
            yield
    except ENCODING_ERRORS as error:
        raise EncodeError(f"{cls.__name__}.{_path(error.__traceback__)}: {error}") from error
    return _framed(correlation_id, message, parts, large)


def encode_request(correlation_id: int, client_id: str | None, message: Any) -> list[Chunk]:
    """Return a request frame for ``writelines``; records are not copied."""
    parts, large = _parts(message)
    key, version = message.__api_key__, message.__version__
    header = encode_request_header(key, version, correlation_id, client_id)
    size = len(header) + sum(map(len, parts))
    return _joined(_pack_size(size) + header, parts, large)


def prepare(cls: type[Any], *, in_steps: bool = False) -> None:
    """Compile the encoder now, so the first message of this class need not wait for it."""
    _compiled(cls)
    if in_steps:
        _compiled_steps(cls)


def _parts(message: Any) -> tuple[list[Chunk], list[int]]:
    cls = type(message)
    parts: list[Chunk] = []
    large: list[int] = []
    try:
        write = _writers.get(cls) or _compiled(cls)
        write(message, parts, large)
    except ENCODING_ERRORS as error:
        raise EncodeError(f"{cls.__name__}.{_path(error.__traceback__)}: {error}") from error
    return parts, large


def _joined(head: bytes, parts: list[Chunk], large: list[int]) -> list[Chunk]:
    """Join the pieces between each two large ones; put ``head`` before the first."""
    chunks: list[Chunk] = []
    start = 0
    for index in large:
        chunks += (head + b"".join(parts[start:index]), parts[index])
        head = b""
        start = index + 1
    chunks.append(head + b"".join(parts[start:]))
    return chunks


Write = Callable[[Any, list[Chunk], list[int]], None]
"""A compiled function: (message, pieces, indexes of the large pieces)."""

_writers: dict[type[Any], Write] = {}

WriteSteps = Callable[[Any, list[Chunk], list[int]], Steps[None]]

_step_writers: dict[type[Any], WriteSteps] = {}

_owners: dict[CodeType, list[Owner]] = {}
"""The field that each line of a compiled function belongs to."""


def _compiled(cls: type[Any]) -> Write:
    """Return the function that writes ``cls``; compile it on first use."""
    known = _writers.get(cls)
    if known is not None:
        return known
    source, names, owners = encoder_source(cls)
    for field in message_fields(cls):
        if field.entity is not None:
            names[f"write_{field.name}"] = _compiled(field.entity)
    code = compile(source, f"<encoder of {cls.__module__}.{cls.__qualname__}>", "exec")
    exec(code, names)  # noqa: S102  The source is made of schema field names alone.
    write: Write = names["write"]
    _owners[names["write"].__code__] = owners
    _writers[cls] = write
    return write


def _compiled_steps(cls: type[Any]) -> WriteSteps:
    """Return the generator function that writes ``cls`` in steps; compile it on first use."""
    known = _step_writers.get(cls)
    if known is not None:
        return known
    source, names, owners = encoder_source(cls, in_steps=True)
    for field in message_fields(cls):
        if field.entity is not None:
            # A struct without arrays has a limited length, so a generator for each would only cost
            # time.
            compiled = _compiled_steps if has_arrays(field.entity) else _compiled
            names[f"write_{field.name}"] = compiled(field.entity)
    code = compile(source, f"<encoder in steps of {cls.__module__}.{cls.__qualname__}>", "exec")
    exec(code, names)  # noqa: S102  The source is made of schema field names alone.
    write: WriteSteps = names["write"]
    _owners[names["write"].__code__] = owners
    _step_writers[cls] = write
    return write


def _path(trace: TracebackType | None) -> str:
    """Return the field that was being written, as ``topics[2].name``."""
    path = []
    while trace is not None:
        owners = _owners.get(trace.tb_frame.f_code)
        if owners is not None:
            name, in_loop = owners[trace.tb_lineno - 1]
            path.append(f"{name}[{trace.tb_frame.f_locals['i']}]" if in_loop else name)
        trace = trace.tb_next
    return ".".join(path)
