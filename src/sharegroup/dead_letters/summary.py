"""A summary of a dead-letter topic: counts by group, handler, reason and error class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.client.fetch.record_reading import Unreadable
from sharegroup.dead_letters.letter import Letter
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.selection import Selection

KINDS_MAX = 1_000
"""Kinds counted separately.  Error classes made at run time would otherwise fill the memory."""


class LetterKind(NamedTuple):
    """The common properties of the letters in one line of the summary."""

    group: str
    handler: str
    reason: str
    error_class: str


OTHERS = LetterKind("(others)", "", "", "")


@dataclass(slots=True)
class Deaths:
    """Counts of the letters of one kind; times are the timestamps of the letters."""

    letters: int = 0
    claimed: int = 0
    """Letters whose origin may be from a producer (`Letter.is_origin_claimed`)."""
    redriven: int = 0
    first_ms: int = 0
    last_ms: int = 0
    last_message: str = ""


async def summary(
    queue: DeadLetterQueue, selection: Selection, *, unreadable: Unreadable | None = None
) -> dict[LetterKind, Deaths]:
    """Count the selected letters by kind, the most frequent kind first."""
    deaths: dict[LetterKind, Deaths] = {}
    needs_records = bool(selection.where or selection.headers or selection.key is not None)
    async for chunk in queue.chunks(selection, complete=needs_records, unreadable=unreadable):
        _count(deaths, chunk.letters, chunk.redriven)
    return dict(sorted(deaths.items(), key=lambda item: (-item[1].letters, item[0])))


def _count(
    found: dict[LetterKind, Deaths], letters: Iterable[Letter], redriven: frozenset[int]
) -> None:
    for letter in letters:
        death = letter.death
        kind = LetterKind(death.group, death.handler, death.reason, death.error_class)
        if kind not in found and len(found) >= KINDS_MAX:
            kind = OTHERS
        deaths = found.setdefault(kind, Deaths(first_ms=letter.timestamp_ms))
        deaths.letters += 1
        deaths.claimed += letter.is_origin_claimed
        deaths.redriven += letter.offset in redriven
        deaths.first_ms = min(deaths.first_ms, letter.timestamp_ms)
        if letter.timestamp_ms >= deaths.last_ms:
            deaths.last_ms = letter.timestamp_ms
            deaths.last_message = death.error_message or death.message
