"""Purging dead letters: deletes the oldest ones, and never a letter that was not selected.

Records can only be deleted from the beginning of a log.  So a purge deletes, in each partition, the
letters before the first one that is not selected.  It reports how many selected letters it left
behind that one:

    selected: rejected        R R R T R R T         R rejected, T timed out
    deleted                   R R R
    left                            T R R T         2 more that match

Letters written during a purge are not touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sharegroup.client.records import TopicPartition
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.selection import Selection


class Purge(NamedTuple):
    """The letters that a purge deletes in one partition."""

    partition: int
    first: int
    before: int
    """Half-open end: all letters from ``first`` to below this offset match and are deleted."""
    letters: int
    behind: int
    """The number of matching letters behind one that does not match; they stay."""


async def plan_purge(queue: DeadLetterQueue, selection: Selection) -> list[Purge]:
    """Determine which letters a purge deletes, by partition."""
    # Then no letter has to be read, and letters that cannot be decoded are deleted, too.
    if selection.is_everything:
        return [
            Purge(
                log_range.where.partition,
                log_range.first,
                log_range.end,
                log_range.end - log_range.first,
                0,
            )
            for log_range in queue.ranges
        ]
    prefixes = {log_range.where.partition: _Prefix(log_range.end) for log_range in queue.ranges}
    async for chunk in queue.chunks(complete=True):
        prefix = prefixes[chunk.partition]
        for letter in chunk.letters:
            matches = selection.matches(letter, redriven=letter.offset in chunk.redriven)
            prefix.add(letter.offset, matches=matches)
    return [
        Purge(
            log_range.where.partition,
            log_range.first,
            prefix.before,
            prefix.letters,
            prefix.behind,
        )
        for log_range, prefix in (
            (log_range, prefixes[log_range.where.partition]) for log_range in queue.ranges
        )
    ]


class _Prefix:
    """The matching letters at the beginning of one partition."""

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
    """Delete the letters of the plan."""
    offsets = {
        TopicPartition(queue.topic, part.partition): part.before
        for part in plan
        if part.before > part.first
    }
    if offsets:
        await queue.delete_before(offsets)
