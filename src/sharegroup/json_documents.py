"""Reads JSON documents of others: from the HTTP ports of brokers and workers, files and records.

Another program may listen on a port by now, so nothing in an answer is taken for granted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from types import UnionType
from typing import Any
from urllib.parse import urlsplit

from sharegroup.escaping import escaped

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of an answer; those of `sharegroup serve` are below 400 KB."""
PIECE_BYTES = 64 * 1024
SHOWN = 200
"""Number of characters of a foreign answer that its error shows."""
MISSING = object()
NUMBER_MAX = 2**63 - 1

CONNECTIONS = {"http": HTTPConnection, "https": HTTPSConnection}


class ForeignDocument(ValueError):
    """The document is none, or has other fields than a document of this version."""


Fields = Mapping[str, type | UnionType]
"""The types of the fields of a JSON object, by name."""


def get_document(url: str, *, timeout_s: float) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of an answer.

    OSError if there is no answer within the time, and ForeignDocument if it is not a JSON object.
    """
    try:
        status, body = _get(url, timeout_s)
    except (HTTPException, UnicodeError) as error:  # The second: no name of a machine.
        raise OSError(f"expected an HTTP response, found {error!r}") from error
    try:
        document = json.loads(body)
    # The second: a foreign program may answer with a hundred thousand brackets.
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        text = escaped(body[:SHOWN].decode("utf-8", "replace").strip())
        raise ForeignDocument(f"expected a JSON object, found status {status} and {text!r}")
    return status, document


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


def _get(url: str, timeout_s: float) -> tuple[int, bytes]:
    """Send a request without the environment's proxies, which are not for these ports."""
    parts = urlsplit(url)
    if parts.scheme not in CONNECTIONS or parts.hostname is None:
        raise ValueError(f"expected the URL of an HTTP port, found {url!r}")
    deadline = time.monotonic() + timeout_s
    connection = CONNECTIONS[parts.scheme](parts.hostname, parts.port, timeout=timeout_s)
    body = bytearray()
    try:
        connection.request("GET", f"{parts.path}?{parts.query}", headers={"Connection": "close"})
        response = connection.getresponse()
        while len(body) < ANSWER_BYTES_MAX and (piece := response.read1(PIECE_BYTES)):
            body += piece
            if time.monotonic() > deadline:
                raise TimeoutError(f"no complete response within {timeout_s:g} s")
        return response.status, bytes(body)
    finally:
        connection.close()
