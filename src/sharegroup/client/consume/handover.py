"""Hands changes of the assignment from the membership to the application's next poll.

A rebalance takes partitions away only while the application is inside `poll`.  There it has
processed the records of the last poll, so their offsets can be committed, and the functions of the
rebalance listener do not run beside the application's own code.  The membership waits, and keeps
sending heartbeats.

    membership --- ask ---> pending change --- poll: commit, listener, states ---> done
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import NamedTuple

from sharegroup.client.records import TopicPartition


class ChangeKind(Enum):
    """The kinds of changes of an assignment."""

    ASSIGNED = auto()
    REVOKED = auto()
    """The partitions are still this member's until the change is done."""
    LOST = auto()
    """Other members may have the partitions already."""


class AssignmentChange(NamedTuple):
    """Partitions that are given to a member or taken from it."""

    kind: ChangeKind
    partitions: frozenset[TopicPartition]


class Handover:
    """The changes of the assignment that wait for the application's poll."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._pending: deque[tuple[AssignmentChange, asyncio.Event]] = deque()

    @property
    def is_pending(self) -> bool:
        """Whether a change waits for a poll."""
        return bool(self._pending)

    async def ask(self, change: AssignmentChange) -> None:
        """Wait until a poll has made the change; a cancellation withdraws it."""
        done = asyncio.Event()
        entry = change, done
        self._pending.append(entry)
        self._changed()
        try:
            await done.wait()
        finally:
            # `make` has removed it already, unless the caller was cancelled.
            if entry in self._pending:
                self._pending.remove(entry)

    async def make(self, apply: Callable[[AssignmentChange], Awaitable[None]]) -> None:
        """Make all pending changes; a change counts as made even if ``apply`` raises an error."""
        while self._pending:
            change, done = self._pending[0]
            try:
                await apply(change)
            finally:
                # A cancelled caller has withdrawn it while `apply` was awaited; another may be the
                # first then.
                if self._pending and self._pending[0][1] is done:
                    self._pending.popleft()
                done.set()
