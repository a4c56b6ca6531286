"""Filters and options of jobs as JSON, and back.

Only conditions that differ from their defaults are written.  Keys and header values are bytes, so
they are written in base64.  A program of others may have written a job's record, so all that is
read is validated.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from sharegroup.dead_letters.expression import Expression
from sharegroup.dead_letters.redrive_copies import RedriveOptions
from sharegroup.dead_letters.selection import Selection
from sharegroup.errors import InvalidConfig
from sharegroup.jobs.job import EVERYTHING, Document
from sharegroup.waiting.waiting_filter import WaitingFilter


class _Conditions(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def is_everything(self) -> bool: ...


T = TypeVar("T", bound=_Conditions)


class Condition(NamedTuple):
    """How the value of one condition is written as JSON, and read; reading raises ValueError."""

    written: Callable[[Any], Any]
    read: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class FilterForm(Generic[T]):
    """The filters of one kind of records as JSON, and back."""

    kind: Callable[..., T]
    records: str
    """The records in words."""
    scope: str
    """All the records that an empty filter would mean, in words."""
    conditions: Mapping[str, Condition]

    def document(self, selection: T, *, everything: bool) -> Document:
        """Return a filter as JSON; raises InvalidConfig if it is empty without ``everything``."""
        if selection.is_everything:
            if not everything:
                raise InvalidConfig(
                    f"the filter is empty, so the job would be for {self.scope}: give a condition, "
                    "such as an error class, or say everything=True"
                )
            return {EVERYTHING: True}
        given = {field.name: getattr(selection, field.name) for field in fields(selection)}
        defaults = {field.name: field.default for field in fields(selection)}
        return {
            name: self.conditions[name].written(value)
            for name, value in given.items()
            if value != defaults[name]
        }

    def parsed(self, document: Document) -> T:
        """Return the filter of a document; raises InvalidConfig if it is empty or not valid."""
        if document == {EVERYTHING: True}:
            return self.kind()
        try:
            unknown = sorted(document.keys() - self.conditions.keys())
            if unknown:
                raise ValueError(f"unknown conditions {unknown}")  # noqa: TRY301  One text.
            selection = self.kind(
                **{
                    name: self.conditions[name].read(value)
                    for name, value in document.items()
                    if value is not None
                }
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidConfig(
                f"expected a filter for {self.records}, found {document!r:.200}: {error}"
            ) from error
        if selection.is_everything:
            raise InvalidConfig(
                f"the filter is empty; give a condition, or {{{EVERYTHING!r}: true}} for all "
                f"{self.records}"
            )
        return selection


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


def _plain(kind: type) -> Condition:
    def read(value: Any) -> Any:
        # A truth value is an int, too.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"expected {kind.__name__}, found {value!r:.100}")
        return value

    return Condition(lambda value: value, read)


def _ids(texts: Any) -> frozenset[str]:
    return frozenset(map(str, texts))


TEXT, NUMBER, TRUTH = _plain(str), _plain(int), _plain(bool)
BYTES = Condition(_base64, _bytes)
WHERE = Condition(lambda expression: expression.text, Expression)
LETTERS = FilterForm(
    Selection,
    "dead letters",
    "all dead letters of the topic",
    {
        **dict.fromkeys(("error_class", "reason", "group", "handler"), TEXT),
        **dict.fromkeys(("since_ms", "until_ms"), NUMBER),
        "redriven": TRUTH,
        "key": BYTES,
        "where": WHERE,
        "headers": Condition(
            lambda headers: [[name, _base64(value)] for name, value in headers],
            lambda headers: tuple((str(name), _bytes(value)) for name, value in headers),
        ),
        "places": Condition(
            lambda places: sorted(map(list, places)),
            lambda places: frozenset((int(number), int(offset)) for number, offset in places),
        ),
    },
)
WAITING = FilterForm(
    WaitingFilter,
    "waiting records",
    "all waiting records of the group",
    {
        **dict.fromkeys(("error_class", "topic"), TEXT),
        **dict.fromkeys(("due_after_ms", "due_before_ms", "failures_min"), NUMBER),
        "ids": Condition(sorted, _ids),
        "key": BYTES,
        "where": WHERE,
    },
)


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
