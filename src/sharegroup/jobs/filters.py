"""Filters and options of jobs as JSON, and back.

Only conditions that differ from their defaults are written.  Keys and header values are bytes, so
they are written in base64.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from sharegroup.dead_letters.expression import Expression
from sharegroup.dead_letters.redrive_copies import RedriveOptions
from sharegroup.dead_letters.selection import Selection
from sharegroup.errors import InvalidConfig
from sharegroup.jobs.job import EVERYTHING, Document

PLAIN = ("error_class", "reason", "group", "handler", "since_ms", "until_ms", "redriven")
"""The conditions that are texts, numbers or truth values."""


def filter_of(selection: Selection, *, everything: bool) -> Document:
    """Return the selection as JSON; raises InvalidConfig if it is empty without ``everything``."""
    if selection.is_everything:
        if not everything:
            raise InvalidConfig(
                "the filter is empty, so the job would be for all dead letters of the topic: give "
                "a condition, such as a group or an error class, or say everything=True"
            )
        return {EVERYTHING: True}
    document: dict[str, Any] = {
        name: value for name in PLAIN if (value := getattr(selection, name)) is not None
    }
    if selection.key is not None:
        document["key"] = _text(selection.key)
    if selection.headers:
        document["headers"] = [
            [name, None if value is None else _text(value)] for name, value in selection.headers
        ]
    if selection.where is not None:
        document["where"] = selection.where.text
    if selection.places:
        document["places"] = sorted(map(list, selection.places))
    return document


def selection_of(document: Document) -> Selection:
    """Return the selection of a filter; raises InvalidConfig if it is empty or not valid."""
    if document == {EVERYTHING: True}:
        return Selection()
    try:
        conditions = dict(document)
        key, where = conditions.pop("key", None), conditions.pop("where", None)
        headers, places = conditions.pop("headers", ()), conditions.pop("places", ())
        unknown = sorted(conditions.keys() - set(PLAIN))
        if unknown:
            raise ValueError(f"unknown conditions {unknown}")  # noqa: TRY301  One text.
        selection = Selection(
            **conditions,
            key=None if key is None else b64decode(key),
            headers=tuple(
                (str(name), None if value is None else b64decode(value)) for name, value in headers
            ),
            where=None if where is None else Expression(where),
            places=frozenset((int(partition), int(offset)) for partition, offset in places),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidConfig(
            f"expected a filter for dead letters, found {document!r:.200}: {error}"
        ) from error
    if selection.is_everything:
        raise InvalidConfig(
            f"the filter is empty; give a condition, or {{{EVERYTHING!r}: true}} for all letters"
        )
    return selection


def options_document(options: RedriveOptions) -> Document:
    """Return the options of a redrive, without its selection, as JSON."""
    return {
        "to": options.to,
        "redrives_max": options.redrives_max,
        "limit": options.limit,
        "rate": options.rate,
        "again": options.again,
        "confirmed": sorted(options.confirmed),
        "targets": None if options.targets is None else sorted(options.targets),
    }


def options_of(selection: Selection, document: Document) -> RedriveOptions:
    """Return the options of a redrive; raises InvalidConfig if they are not valid."""
    try:
        if document["to"] not in ("own", "original"):
            raise ValueError(f"to={document['to']!r}")  # noqa: TRY301  One text.
        return RedriveOptions(
            selection=selection,
            to=document["to"],
            redrives_max=int(document["redrives_max"]),
            limit=None if document["limit"] is None else int(document["limit"]),
            rate=None if document["rate"] is None else float(document["rate"]),
            again=bool(document["again"]),
            confirmed=frozenset(map(str, document["confirmed"])),
            targets=targets_of(document),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidConfig(
            f"expected the options of a redrive, found {document!r:.200}: {error!r}"
        ) from error


def targets_of(document: Document) -> frozenset[str] | None:
    """Return the only topics that the options of a redrive name; None: all."""
    # Jobs of earlier versions have no such field.
    targets = document.get("targets")
    return None if targets is None else frozenset(map(str, targets))


def _text(value: bytes) -> str:
    return b64encode(value).decode("ascii")
