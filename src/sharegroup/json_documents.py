"""Validates JSON documents that other programs have written: in records, files and HTTP answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import UnionType
from typing import Any

MISSING = object()
NUMBER_MAX = 2**63 - 1


class ForeignDocument(ValueError):
    """The document is none, or has other fields than a document of this version."""


Fields = Mapping[str, type | UnionType]
"""The types of the fields of a JSON object, by name."""


def typed_fields(document: object, fields: Fields) -> dict[str, Any]:
    """Return these fields of a JSON object; others may be of a newer version.

    ForeignDocument if one is missing or has another type.
    """
    if not isinstance(document, dict):
        names, found = ", ".join(fields), type(document).__name__
        raise ForeignDocument(f"expected an object with {names}, found {found}")
    for name, kind in fields.items():
        value = document.get(name, MISSING)
        # JSON's true is an int in Python, and no field is of that type.
        if not isinstance(value, kind) or isinstance(value, bool):
            expected = kind.__name__ if isinstance(kind, type) else kind
            found = "nothing" if value is MISSING else type(value).__name__
            raise ForeignDocument(f"expected {name!r} of type {expected}, found {found}")
    return {name: document[name] for name in fields}


def object_of(value: bytes, *, bytes_max: int) -> dict[str, Any]:
    """Return the JSON object in the value of a record; ForeignDocument if there is none."""
    if len(value) > bytes_max:
        raise ForeignDocument(f"expected up to {bytes_max} bytes, found {len(value)}")
    try:
        document = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ForeignDocument(f"expected JSON, found {value!r:.200}") from error
    if not isinstance(document, dict):
        raise ForeignDocument(f"expected an object of JSON, found {value!r:.200}")
    return document


def text_of(value: object, *, characters_max: int) -> str:
    """Return the beginning of a text of JSON that UTF-8 can write; ForeignDocument if it is none.

    A lone surrogate is valid in JSON, and cannot be written to a header or a terminal.
    """
    if not isinstance(value, str):
        raise ForeignDocument(f"expected a text, found {value!r:.100}")
    return value.encode("utf-8", "replace").decode()[:characters_max]


def count_of(value: object) -> int:
    """Return a number of JSON from 0 that fits 64 bits; ForeignDocument if it is none."""
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise ForeignDocument(f"expected a number from 0, found {value!r:.100}")
    return value
