"""Codecs: decode the payload of a handler from a record's value, and encode it for its sender.

    bytes                      the value as it is
    str                        UTF-8
    types of msgspec           JSON: dict, Any, dataclass, TypedDict, NamedTuple, msgspec.Struct,
                                 scalars, tuple[X, ...], unions that can be told apart
    types of pydantic          JSON: its models and dataclasses, and types that contain them
    payload=Registry(...)      Avro or JSON with a schema from a registry
    payload=Payload(...)       functions of the application

The decoder is built once per handler.  Its exceptions become `UnreadablePayload`: the bytes are not
what the handler takes, so a retry cannot help.  An OSError is different, for example if a schema
registry does not answer.  It counts as a failure of the handler and is retried.

A tombstone (a record without a value) is None, if the annotation of the handler allows None.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Union, get_args, get_origin

from sharegroup.errors import InvalidConfig
from sharegroup.worker.payloads.json_values import Decode, Encode, json_functions
from sharegroup.worker.payloads.registry import Registry


class UnreadablePayload(ValueError):
    """A record's value cannot be decoded for its handler; the cause is the decoder's error."""

    __module__ = "sharegroup.worker"  # The module from which users import it.


NONE = type(None)


class Codec(Protocol):
    """Decodes and encodes the payloads of one handler."""

    @property
    def may_block(self) -> bool:
        """Whether `decode` and `encode` may wait for a server, so they must run in a thread."""

    def decode(self, value: bytes | None) -> Any:
        """Decode a value; raises UnreadablePayload, or an OSError that may be transient."""

    def encode(self, payload: Any, topic: str) -> bytes | None:
        """Encode a payload for this topic; raises TypeError if the handler cannot take it."""

    def close(self) -> None:
        """Close the connections of the codec; the next use opens them again."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A codec from the application's functions: ``payload=Payload(decode=..., encode=...)``."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] | None = None
    """None if the handler's sender refuses to send."""

    def __post_init__(self) -> None:
        given: tuple[object, ...] = (self.decode, self.encode or bytes)
        if not all(map(callable, given)):  # Only type checkers see the types.
            raise InvalidConfig(f"{self}; expected functions: Payload(decode=..., encode=...)")


@dataclass(frozen=True, slots=True)
class HandlerCodec:
    """The codec of one handler; `codec_for` creates it."""

    read: Decode
    write: Encode
    allows_none: bool
    expected: str
    """The payload type, as a text for error messages."""
    may_block: bool = False
    disconnect: Callable[[], None] | None = None
    """Closes the connections of `read` and `write`; None if they have none."""

    def decode(self, value: bytes | None) -> Any:
        """Decode a value; raises UnreadablePayload, or an OSError that may be transient."""
        if value is None:
            if self.allows_none:
                return None
            raise UnreadablePayload(f"expected {self.expected}, but the record has no value")
        try:
            return self.read(value)
        except OSError:
            raise
        except Exception as error:
            text = (
                f"expected {self.expected}, got {len(value)} bytes that cannot be decoded: {error}"
            )
            raise UnreadablePayload(text) from error

    def encode(self, payload: Any, topic: str) -> bytes | None:
        """Encode a payload for this topic; raises TypeError if the handler cannot take it."""
        if payload is None and self.allows_none:
            return None
        return self.write(payload, topic)

    def close(self) -> None:
        """Close the connections of the codec; the next use opens them again."""
        if self.disconnect is not None:
            self.disconnect()


def codec_for(annotation: Any, payload: Payload | Registry | None = None) -> Codec:
    """Create the codec of a handler from the annotation of its payload."""
    inner, allows_none = _without_none(annotation)
    expected = text_of(inner)
    if payload is None:
        read, write = _by_annotation(inner)
        return HandlerCodec(read, write, allows_none, expected)
    if isinstance(payload, Payload):
        return HandlerCodec(payload.decode, _own_encoder(payload), allows_none, expected)
    if not isinstance(payload, Registry):
        raise InvalidConfig(
            f"payload={payload!r}; expected a Payload(decode=..., encode=...), a Registry(...), "
            f"or None for JSON"
        )
    read, write, disconnect = payload.functions_for(inner)
    return HandlerCodec(read, write, allows_none, expected, may_block=True, disconnect=disconnect)


def text_of(annotation: Any) -> str:
    """An annotation as a text for messages."""
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
            raise TypeError("payloads cannot be sent to this handler: its Payload has no `encode`")

        return refuse
    return lambda value, _topic: encode(value)
