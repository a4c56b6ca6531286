"""What lies there, by what went wrong: one line for each kind of death."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.worker.dead_letters.letter import Letter
from sharegroup.worker.dead_letters.queue import DeadLetterQueue
from sharegroup.worker.dead_letters.selection import Selection

KINDS_MAX = 1_000
"""Kinds that are told apart; errors whose classes are made as they go would fill the memory."""


class Kind(NamedTuple):
    """Letters with these in common are one line."""

    group: str
    handler: str
    reason: str
    error_class: str


OTHERS = Kind("(others)", "", "", "")


@dataclass(slots=True)
class Deaths:
    """The letters of one kind; times are those of the letters."""

    letters: int = 0
    redriven: int = 0
    first_ms: int = 0
    last_ms: int = 0
    last_message: str = ""


async def summary(queue: DeadLetterQueue, selection: Selection) -> dict[Kind, Deaths]:
    """The selected letters by kind, the most frequent first."""
    found: dict[Kind, Deaths] = {}
    needs_records = bool(selection.where or selection.headers or selection.key is not None)
    async for chunk in queue.chunks(selection, complete=needs_records):
        _count(found, chunk.letters, chunk.redriven)
    return dict(sorted(found.items(), key=lambda item: (-item[1].letters, item[0])))


def _count(found: dict[Kind, Deaths], letters: Iterable[Letter], redriven: frozenset[int]) -> None:
    for letter in letters:
        death = letter.death
        kind = Kind(death.group, death.handler, death.reason, death.error_class)
        if kind not in found and len(found) >= KINDS_MAX:
            kind = OTHERS
        one = found.setdefault(kind, Deaths(first_ms=letter.timestamp_ms))
        one.letters += 1
        one.redriven += letter.offset in redriven
        one.first_ms = min(one.first_ms, letter.timestamp_ms)
        if letter.timestamp_ms >= one.last_ms:
            one.last_ms = letter.timestamp_ms
            one.last_message = death.error_message or death.message
