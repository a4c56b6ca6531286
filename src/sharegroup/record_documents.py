"""A record as a JSON document: how ``--json``, exports and their readers write and read it.

Bytes that are UTF-8 become text, and others base64 under another name.  Lines of such documents
have no character that controls a terminal.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sharegroup.wire.batches.header_names import Header, UndecodedName
from sharegroup.wire.codec.schema import EPOCH


class Row(NamedTuple):
    """One record as input of the formats; times are in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    delivery_count: int = 0
    deadline_ms: int = 0
    left_ms: int = 0
    number: int = 0
    leader_epoch: int | None = None
    """The epoch of the leader that wrote the record; None: unknown."""
    has_append_time: bool = False
    """Whether the timestamp is the broker's time of the append."""


def as_json(row: Row) -> dict[str, Any]:
    """Return a row as a JSON document, for deliveries with delivery count and lock deadline.

    Bytes that are UTF-8 become text. Others become base64 under another name:
    ``value_base64`` in place of ``value``, but ``name_base64`` beside ``name``. ``sharegroup
    produce --json`` reads the document.
    """
    document: dict[str, Any] = {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": row.timestamp_ms,
    }
    _put(document, "key", row.key)
    _put(document, "value", row.value)
    document["headers"] = headers = []
    for name, content in row.headers:
        header: dict[str, Any] = {"name": name}
        if isinstance(name, UndecodedName):
            header["name_base64"] = base64.b64encode(name.raw).decode()
        _put(header, "value", content)
        headers.append(header)
    if row.delivery_count:
        document["delivery_count"] = row.delivery_count
        document["deadline"] = row.deadline_ms
    return document


def json_line(document: object) -> bytes:
    """Return a document as compact JSON in UTF-8, with a newline."""
    return json_bytes(document) + b"\n"


def json_bytes(document: object) -> bytes:
    """Return a document as compact JSON in UTF-8, without a newline.

    If it has characters that control a terminal or reorder its text, all that are not ASCII are
    JSON's escapes, which programs read as the same text.
    """
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    if not text.isprintable():
        text = json.dumps(document, separators=(",", ":")).replace("\x7f", "\\u007f")
    return text.encode()


def _put(document: dict[str, Any], name: str, content: bytes | None) -> None:
    try:
        document[name] = None if content is None else content.decode()
    except UnicodeDecodeError:
        assert content is not None
        document[f"{name}_base64"] = base64.b64encode(content).decode()


def rfc3339(milliseconds: int) -> str:
    """Format milliseconds since 1970 as text in UTC; OverflowError outside the dates."""
    return moment(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(milliseconds: int) -> datetime:
    """Return milliseconds since 1970 as a time in UTC; OverflowError outside the dates."""
    return EPOCH + timedelta(milliseconds=milliseconds)
