"""Checks that a handler reads a payload as it was sent.

Encoders of JSON lose what JSON lacks: NaN and infinity become null, bytes and dates become text,
keys that are numbers become text.  If the annotation does not say what the text was, the handler
gets something else, or cannot read the record at all.  Then every attempt fails, far from the
mistake.  So a sender decodes what it is about to send, and refuses the payload if it differs.

A tuple that is read as a list counts as equal, because JSON has one kind of sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharegroup.worker.payloads.functions import Decode, Encode

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
