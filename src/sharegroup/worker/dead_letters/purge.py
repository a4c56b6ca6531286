"""Giving dead letters up, oldest first, and never one that was not meant.

A log can only be cut from its beginning.  So a purge deletes, in each partition, the letters in
front of the first one that it is not asked to delete, and says how many it would have deleted
behind that:

    asked for: rejected       R R R T R R T         R rejected, T timed out
    deleted                   R R R
    left                            T R R T         2 more that match

What is written while it looks is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sharegroup.client.records import TopicPartition
from sharegroup.worker.dead_letters.queue import DeadLetterQueue
from sharegroup.worker.dead_letters.selection import Selection


class Purge(NamedTuple):
    """What there is to delete in one partition."""

    partition: int
    first: int
    before: int
    """All letters from ``first`` to here match, and are deleted."""
    letters: int
    behind: int
    """Letters that match and lie behind one that doesn't."""


async def plan_purge(queue: DeadLetterQueue, selection: Selection) -> list[Purge]:
    """What a purge would delete, by partition."""
    if selection.is_everything:
        return [
            Purge(span.where.partition, span.first, span.end, span.end - span.first, 0)
            for span in queue.spans
        ]
    found = {span.where.partition: _Prefix(span.end) for span in queue.spans}
    async for chunk in queue.chunks(complete=True):
        prefix = found[chunk.partition]
        for letter in chunk.letters:
            matches = selection.matches(letter, redriven=letter.offset in chunk.redriven)
            prefix.add(letter.offset, matches=matches)
    return [
        Purge(span.where.partition, span.first, prefix.before, prefix.letters, prefix.behind)
        for span, prefix in ((span, found[span.where.partition]) for span in queue.spans)
    ]


class _Prefix:
    """The letters of one partition that match from the first one on."""

    __slots__ = ("_broken", "before", "behind", "letters")

    def __init__(self, end: int) -> None:
        self.before = end
        self.letters = 0
        self.behind = 0
        self._broken = False

    def add(self, offset: int, *, matches: bool) -> None:
        if matches:
            self.behind += self._broken
            self.letters += not self._broken
        elif not self._broken:
            self._broken = True
            self.before = offset


async def purge(queue: DeadLetterQueue, plan: Iterable[Purge]) -> None:
    """Delete what the plan says."""
    offsets = {
        TopicPartition(queue.topic, one.partition): one.before
        for one in plan
        if one.before > one.first
    }
    if offsets:
        await queue.delete_before(offsets)
