"""Which times an owner of the shared history has to write: a decision from three times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.console.remember.topics import TierTopic


class Window(NamedTuple):
    """The times [first_ms, end_ms) of one block; they are within one slot."""

    slot_ms: int
    """The begin of the slot."""
    first_ms: int
    end_ms: int


def due(
    topic: TierTopic, written_ms: int, now_ms: int, *, whole_slots: bool = True
) -> Iterator[Window]:
    """Yield what comes after ``written_ms``, and is not older than the backlog of the topic.

    Slots that have not ended are left out, unless ``whole_slots`` is False.  If the clock was set
    back, the slot of now is the first that is written again.
    """
    length = topic.slot_ms
    slot_of_now = now_ms - now_ms % length
    first = max(written_ms + 1, now_ms - topic.backlog_ms)
    if first > slot_of_now + length:
        first = slot_of_now
    end = slot_of_now if whole_slots else now_ms + 1
    while first < end:
        slot = first - first % length
        window = Window(slot, first, min(slot + length, end))
        yield window
        first = window.end_ms
