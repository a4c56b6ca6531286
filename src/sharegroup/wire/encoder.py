"""Encoding messages: a Python function compiled from each message class.

The counterpart of `decoder`, built in the same way from the same metadata (`encoder_source`).
kio's writers take 16 to 40 us for a share fetch message, as they call a function for every
number, and they accept no error code that they do not know; these take a fifth of that and
give the same bytes, which a test holds for every message class.

Frames come as lists of chunks: the size, header and everything small are one piece, records
stay the objects that the caller gave.  A message that cannot be written (a string where a
number belongs, null where it is not allowed) raises EncodeError with the field's path; that
is a mistake in our own program.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

from sharegroup.wire.apis import response_header_version
from sharegroup.wire.encoder_source import Owner, encoder_source
from sharegroup.wire.headers import encode_request_header
from sharegroup.wire.schema import message_fields

Chunk = bytes | bytearray | memoryview

_pack_size = struct.Struct(">i").pack
_pack_response_0 = struct.Struct(">ii").pack
_pack_response_1 = struct.Struct(">iiB").pack


class EncodeError(Exception):
    """The message does not fit its class; the text has the field and what is wrong."""


def encode(message: Any) -> bytes:
    """The message alone, without header and size."""
    parts, _ = _parts(message)
    return b"".join(parts)


def encode_response(correlation_id: int, message: Any) -> bytes:
    """A response frame as one piece: size, header, message."""
    return b"".join(encode_response_chunks(correlation_id, message))


def encode_response_chunks(correlation_id: int, message: Any) -> list[Chunk]:
    """A response frame for ``writelines``; records are not copied."""
    parts, large = _parts(message)
    size = sum(map(len, parts))
    if response_header_version(message.__api_key__, message.__version__) == 1:
        head = _pack_response_1(size + 5, correlation_id, 0)
    else:
        head = _pack_response_0(size + 4, correlation_id)
    return _joined(head, parts, large)


def encode_request(correlation_id: int, client_id: str | None, message: Any) -> list[Chunk]:
    """A request frame for ``writelines``; records are not copied."""
    parts, large = _parts(message)
    key, version = message.__api_key__, message.__version__
    header = encode_request_header(key, version, correlation_id, client_id)
    size = len(header) + sum(map(len, parts))
    return _joined(_pack_size(size) + header, parts, large)


def prepare(cls: type[Any]) -> None:
    """Compile now what the first message of this class would have to wait for."""
    _compiled(cls)


def _parts(message: Any) -> tuple[list[Chunk], list[int]]:
    cls = type(message)
    parts: list[Chunk] = []
    large: list[int] = []
    try:
        write = _writers.get(cls) or _compiled(cls)
        write(message, parts, large)
    except (struct.error, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise EncodeError(f"{cls.__name__}.{_path(error.__traceback__)}: {error}") from error
    return parts, large


def _joined(head: bytes, parts: list[Chunk], large: list[int]) -> list[Chunk]:
    """The pieces with everything between two large ones made one."""
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

_owners: dict[CodeType, list[Owner]] = {}
"""For each compiled function the field that each of its lines belongs to."""


def _compiled(cls: type[Any]) -> Write:
    """The function that writes ``cls``, made when first asked for."""
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


def _path(trace: TracebackType | None) -> str:
    """The field that was being written, as ``topics[2].name``."""
    path = []
    while trace is not None:
        owners = _owners.get(trace.tb_frame.f_code)
        if owners is not None:
            name, in_loop = owners[trace.tb_lineno - 1]
            path.append(f"{name}[{trace.tb_frame.f_locals['i']}]" if in_loop else name)
        trace = trace.tb_next
    return ".".join(path)
