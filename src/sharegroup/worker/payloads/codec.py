"""How a handler's payload is read from a record's value, and written to one by its sender.

    bytes                      the value as it is
    str                        UTF-8
    everything that msgspec    JSON: dict, Any, dataclass, TypedDict, NamedTuple, msgspec.Struct,
      takes                      scalars, tuple[X, ...], unions of what can be told apart
    what pydantic takes        JSON: its models and dataclasses, and whatever contains them
    payload=Registry(...)      Avro or JSON with a schema from a registry
    payload=Payload(...)       functions of the application's own

The decoder is built once per handler.  What it raises means that the bytes are not what the
handler takes, `UnreadablePayload`, and will not be next time either.  An OSError is not about the
bytes (a registry could not be asked): it is a failure like one of the handler's, and tried again.

A record without a value, a tombstone, is None for a handler whose annotation allows None.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Union, get_args, get_origin

from sharegroup.errors import InvalidConfig
from sharegroup.worker.payloads.unreadable import UnreadablePayload

if TYPE_CHECKING:
    from sharegroup.worker.payloads.registry import Registry

Decode = Callable[[bytes], Any]
Encode = Callable[[Any, str], bytes]
"""The second argument is the topic that it is for."""

NONE = type(None)


class Codec(Protocol):
    """Both ways."""

    @property
    def may_block(self) -> bool:
        """Whether `decode` and `encode` may wait for a server, and belong into a thread."""

    def decode(self, value: bytes | None) -> Any:
        """The payload; raises UnreadablePayload, or an OSError that another time may not come."""

    def encode(self, payload: Any, topic: str) -> bytes | None:
        """The value of a record for this topic; TypeError when it isn't what the handler takes."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Functions of the application's own: ``payload=Payload(decode=..., encode=...)``."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] | None = None
    """None: the handler's sender refuses to send."""

    def __post_init__(self) -> None:
        given: tuple[object, ...] = (self.decode, self.encode or bytes)
        if not all(map(callable, given)):  # Who has no type checker may give anything.
            raise InvalidConfig(f"{self}; expected functions: Payload(decode=..., encode=...)")


@dataclass(frozen=True, slots=True)
class HandlerCodec:
    """Of one handler; see `codec_for`."""

    read: Decode
    write: Encode
    allows_none: bool
    expected: str
    """What the handler takes, in words."""
    may_block: bool = False

    def decode(self, value: bytes | None) -> Any:
        """See `Codec`."""
        if value is None:
            if self.allows_none:
                return None
            raise UnreadablePayload(f"expected {self.expected}, and the record has no value")
        try:
            return self.read(value)
        except OSError:
            raise
        except Exception as error:
            text = f"expected {self.expected}, got {len(value)} bytes that are not: {error}"
            raise UnreadablePayload(text) from error

    def encode(self, payload: Any, topic: str) -> bytes | None:
        """See `Codec`."""
        if payload is None and self.allows_none:
            return None
        return self.write(payload, topic)


def codec_for(annotation: Any, payload: Payload | Registry | None = None) -> Codec:
    """The codec of a handler whose payload is annotated so."""
    inner, allows_none = _without_none(annotation)
    expected = text_of(inner)
    if payload is None:
        read, write = _by_annotation(inner)
        return HandlerCodec(read, write, allows_none, expected)
    if isinstance(payload, Payload):
        return HandlerCodec(payload.decode, _own_encoder(payload), allows_none, expected)
    from sharegroup.worker.payloads.registry import Registry  # Of an optional library.

    if not isinstance(payload, Registry):
        raise InvalidConfig(
            f"payload={payload!r}; expected a Payload(decode=..., encode=...), a Registry(...), "
            f"or None for JSON"
        )
    read, write = payload.functions_for(inner)
    return HandlerCodec(read, write, allows_none, expected, may_block=True)


def text_of(annotation: Any) -> str:
    """An annotation in the words of a message."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """The annotation without ``| None``, and whether None is allowed."""
    if annotation in (Any, object, NONE, None):
        return (Any if annotation is object else annotation), True
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    parts = get_args(annotation)
    others = tuple(part for part in parts if part is not NONE)
    return (others[0] if len(others) == 1 else annotation), NONE in parts


def _by_annotation(annotation: Any) -> tuple[Decode, Encode]:
    if annotation is bytes:
        return _same, _checked_bytes
    if annotation is str:
        return _text, _checked_text
    from sharegroup.worker.payloads.json_values import json_functions  # msgspec, if installed.

    return json_functions(annotation)


def _same(value: bytes) -> bytes:
    return value


def _text(value: bytes) -> str:
    return value.decode()


def _checked_bytes(payload: Any, _topic: str) -> bytes:
    if not isinstance(payload, bytes):
        raise TypeError(f"payload: expected bytes, got {type(payload).__name__}")
    return payload


def _checked_text(payload: Any, _topic: str) -> bytes:
    if not isinstance(payload, str):
        raise TypeError(f"payload: expected str, got {type(payload).__name__}")
    return payload.encode()


def _own_encoder(payload: Payload) -> Encode:
    encode = payload.encode
    if encode is None:

        def refuse(_payload: Any, _topic: str) -> bytes:
            raise TypeError("this handler can't be sent to: its Payload has no `encode`")

        return refuse
    return lambda value, _topic: encode(value)
