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
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, is_typeddict

from sharegroup.errors import InvalidConfig
from sharegroup.worker.payloads.read_back import with_read_back

if TYPE_CHECKING:
    from sharegroup.worker.payloads.functions import Decode, Encode

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
        raise InvalidConfig(
            f"a payload of {annotation!r} needs msgspec, pip install 'sharegroup[worker]'"
        )

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
