"""JSON payloads, decoded and encoded by msgspec, pydantic, or the standard library.

msgspec validates while it parses, and is several times as fast as other parsers without validation.
Annotations that msgspec does not support need pydantic: its own models, unions of dataclasses.
Without both libraries, the standard library reads plain dicts and lists.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import Any, is_typeddict

from sharegroup.errors import InvalidConfig, MissingExtra
from sharegroup.installation import pip_install

Decode = Callable[[bytes], Any]
"""Decodes the value of a record."""

Encode = Callable[[Any, str], bytes]
"""Encodes a payload; the second argument is the topic that the record is for."""


UNTYPED = (Any, dict)


def json_functions(annotation: Any) -> tuple[Decode, Encode]:
    """The functions that decode and encode this annotation as JSON.

    The second raises TypeError or ValueError for a payload that the first would read differently.
    """
    read, write = _functions(annotation)
    return read, with_read_back(read, write)


def _functions(annotation: Any) -> tuple[Decode, Encode]:
    try:
        import msgspec  # Of the extra `worker`; without it, JSON has no types.
    except ModuleNotFoundError:
        return _untyped(annotation)
    if reason := unknown_to_msgspec(annotation):
        return _by_pydantic(annotation, reason)
    write = msgspec.json.Encoder().encode
    if not _is_class(annotation):
        return msgspec.json.Decoder(annotation).decode, lambda payload, _topic: write(payload)

    def checked(payload: Any, _topic: str) -> bytes:
        _check_class(payload, annotation)
        return write(payload)

    return msgspec.json.Decoder(annotation).decode, checked


def unknown_to_msgspec(annotation: Any) -> str | None:
    """Why msgspec cannot read this annotation; None if it can."""
    import msgspec  # Of the extra `worker`.

    try:
        described = msgspec.inspect.type_info(annotation)
    except TypeError as error:
        return str(error)
    except NameError as error:
        return f"an annotation in it can't be read: {error}"
    for inner in _types_within(described, set()):
        if isinstance(inner, msgspec.inspect.CustomType):
            return f"msgspec does not support the type {inner.cls.__qualname__}"
    return None


def to_plain(payload: Any) -> Any:
    """Convert a payload to dicts, lists and scalars; keeps types that schema languages have."""
    if hasattr(payload, "model_dump"):  # A pydantic model.
        return payload.model_dump()
    import msgspec  # Of the extra `worker`.

    kept = (bytes, dt.datetime, dt.date, dt.time, decimal.Decimal, uuid.UUID)
    return msgspec.to_builtins(payload, builtin_types=kept)


def from_plain(annotation: Any) -> Any:
    """A function that converts dicts, lists and scalars to the annotated type."""
    import msgspec  # Of the extra `worker`.

    reason = unknown_to_msgspec(annotation)
    if reason is None:
        return lambda plain: msgspec.convert(plain, annotation)
    return _adapter(annotation, reason).validate_python


def schema_of(annotation: Any) -> dict[str, Any]:
    """The JSON schema of this annotation."""
    import msgspec  # Of the extra `worker`.

    reason = unknown_to_msgspec(annotation)
    if reason is None:
        return msgspec.json.schema(annotation)
    schema: dict[str, Any] = _adapter(annotation, reason).json_schema()
    return schema


def _untyped(annotation: Any) -> tuple[Decode, Encode]:
    if annotation not in UNTYPED:
        text = f"a payload of {annotation!r} needs msgspec, {pip_install('worker')}"
        raise InvalidConfig(text) from MissingExtra(text)

    def read(value: bytes) -> Any:
        payload = json.loads(value)
        if annotation is dict and not isinstance(payload, dict):
            raise ValueError(f"expected an object, got {type(payload).__name__}")
        return payload

    def write(payload: Any, _topic: str) -> bytes:
        return json.dumps(
            payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()

    return read, write


def _by_pydantic(annotation: Any, reason: str) -> tuple[Decode, Encode]:
    adapter = _adapter(annotation, reason)

    def write(payload: Any, _topic: str) -> bytes:
        if isinstance(annotation, type):
            _check_class(payload, annotation)
        encoded: bytes = adapter.dump_json(payload, warnings="error")
        return encoded

    return adapter.validate_json, write


def _adapter(annotation: Any, reason: str) -> Any:
    expected = (
        f"a payload of {annotation!r} can't be read from JSON: {reason}; expected bytes, str, "
        f"dict, a dataclass, TypedDict, msgspec.Struct or pydantic model, or "
        f"payload=Payload(decode=...)"
    )
    try:
        import pydantic  # Optional; installed by applications that use it.
    except ModuleNotFoundError:
        raise InvalidConfig(f"{expected} (pydantic may support it, but is not installed)") from None
    errors = pydantic.errors
    unknown = (errors.PydanticUserError, errors.PydanticSchemaGenerationError)
    try:
        adapter = pydantic.TypeAdapter(annotation)
    except unknown as error:
        raise InvalidConfig(expected) from error
    if not adapter.pydantic_complete:  # Otherwise the error would come with the first record.
        raise InvalidConfig(expected)
    return adapter


def _types_within(described: Any, seen: set[int]) -> Iterator[Any]:
    """The description of a type and of all types in it; recursive types are visited once."""
    if id(described) in seen:
        return
    seen.add(id(described))
    yield described
    names = getattr(described, "__struct_fields__", ())
    for content in (getattr(described, name) for name in names):
        inside = content if isinstance(content, tuple) else (content,)
        for inner in inside:
            if hasattr(inner, "__struct_fields__"):
                yield from _types_within(inner, seen)


def _is_class(annotation: Any) -> bool:
    """Whether isinstance can check a payload before another type is encoded by mistake."""
    return (
        isinstance(annotation, type)
        and (is_dataclass(annotation) or hasattr(annotation, "__struct_fields__"))
        and not is_typeddict(annotation)
    )


def _check_class(payload: Any, expected: type) -> None:
    if not isinstance(payload, expected):
        raise TypeError(f"payload: expected {expected.__name__}, got {type(payload).__name__}")


# A sender checks that the handler reads a payload as it was sent. Encoders of JSON lose what JSON
# lacks: NaN and infinity become null, bytes and dates become text, keys that are numbers become
# text. If the annotation does not say what the text was, the handler gets something else, or cannot
# read the record at all. Then every attempt fails, far from the mistake. So a sender decodes what
# it is about to send, and refuses the payload if it differs.
#
# A tuple that is read as a list counts as equal, because JSON has one kind of sequence.


VALUE_BYTES_SHOWN = 80
ABSENT = object()


def with_read_back(read: Decode, write: Encode) -> Encode:
    """An encoder that raises ValueError if ``read`` does not return what ``write`` was given."""

    def checked(payload: Any, topic: str) -> bytes:
        value = write(payload, topic)
        try:
            found = read(value)
        except Exception as error:  # An application's validators may raise anything.
            raise ValueError(
                f"payload: its handler could not read it: {error}; it would be sent as "
                f"{value[:VALUE_BYTES_SHOWN]!r}"
            ) from error
        if found != payload and (difference := difference_of(payload, found)):
            raise ValueError(
                f"{difference}; expected a payload that its handler reads as it was sent: annotate "
                f"the handler's payload with its types, or send what JSON has"
            )
        return value

    return checked


def difference_of(sent: Any, found: Any, where: str = "payload") -> str | None:
    """The first difference between a payload and what a handler reads; None if there is none."""
    if sent == found or (sent != sent and found != found):
        return None
    pairs: Iterable[tuple[str, Any, Any]]
    same_type = type(sent) is type(found)
    if isinstance(sent, list | tuple) and isinstance(found, list | tuple):
        both = zip_longest(sent, found, fillvalue=ABSENT)
        pairs = ((f"{where}[{index}]", *pair) for index, pair in enumerate(both))
    elif isinstance(sent, Mapping) and isinstance(found, Mapping):
        pairs = (
            (f"{where}[{key!r}]", sent.get(key, ABSENT), found.get(key, ABSENT))
            for key in {**sent, **found}
        )
    elif same_type and (names := _fields(sent)) is not None:
        pairs = ((f"{where}.{name}", getattr(sent, name), getattr(found, name)) for name in names)
    elif same_type and getattr(type(sent), "__eq__") is getattr(object, "__eq__"):  # noqa: B009
        return None  # Nothing can tell them apart.
    else:
        return f"{where}: {_shown(sent)} would be read as {_shown(found)}"
    for place, of_sent, of_found in pairs:
        if difference := difference_of(of_sent, of_found, place):
            return difference
    return None


def _fields(payload: Any) -> Iterable[str] | None:
    """The names of the fields that are sent; None for other types."""
    if is_dataclass(payload):
        return [field.name for field in fields(payload) if field.init]
    if (of_model := getattr(type(payload), "model_fields", None)) is not None:
        return [name for name, field in of_model.items() if not field.exclude]
    names: Iterable[str] | None = getattr(payload, "__struct_fields__", None)
    return names


def _shown(value: Any) -> str:
    return "nothing" if value is ABSENT else f"{value!r:.60} ({type(value).__name__})"
