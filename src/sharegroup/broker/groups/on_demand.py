"""Parts of the broker that are made when they are first needed, with the modules that they import.

Many brokers serve only share groups, or only consumer groups, and most have no transactions.  So a
coordinator is imported and made when a log holds one of its records or a request needs it, or soon
after the start (`broker.server.warm_up`).  Until then it has no group.

    at the start        the log has a record ──▶ make ──▶ all records are read ──▶ agree
    at a first request                           make ──▶ begin
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sharegroup.broker.groups.group_log import GroupLog, Reading, RegisteredCoordinator
from sharegroup.ids import GroupId, TopicIdPartition
from sharegroup.protocol_enums import GroupType

if TYPE_CHECKING:
    # Imported at first use, as the module says.
    from sharegroup.broker.groups.modern_group_coordinator import ModernGroupCoordinator
    from sharegroup.core.groups.classic.classic_groups import Committer
    from sharegroup.core.groups.modern.group import ModernGroup
    from sharegroup.core.groups.share.share_group import ListedGroup

T = TypeVar("T")

RECORD_TYPES = {
    GroupType.SHARE: frozenset({10, 11, 12, 13, 14, 15}),
    GroupType.CONSUMER: frozenset({3, 4, 5, 6, 7, 8, 16}),
    GroupType.CLASSIC: frozenset({1, 2}),
}
"""Types of the records in ``__consumer_offsets``, by the type of their groups.

A start does not import their enums, which are in `core.groups`."""


class OnDemand(Generic[T]):
    """A part that is made when it is first needed; all views of the parts share it."""

    __slots__ = ("_begin", "_made", "_make", "existing")

    def __init__(self, make: Callable[[], T], begin: Callable[[T], None] | None = None) -> None:
        """``begin`` is called with a part that is made for a request."""
        self._make = make
        self._begin = begin
        self._made = asyncio.Event()
        self.existing: T | None = None
        """None until it is first needed."""

    def __call__(self) -> T:
        """Return the part, and make it if this is the first use."""
        if self.existing is not None:
            return self.existing
        part = self.make()
        if self._begin is not None:
            self._begin(part)
        return part

    def make(self) -> T:
        """Make the part alone, for a reading of its records."""
        self.existing = self._make()
        self._made.set()
        return self.existing

    async def when_made(self) -> T:
        """Wait for the first use."""
        await self._made.wait()
        return self()


class GroupCoordinator(Protocol):
    """A coordinator of groups of one type."""

    def has(self, group_id: GroupId) -> bool:
        """Whether a group of its type with this id exists."""

    def begin_reading(self) -> Reading:
        """Begin a reading of the log."""


Coordinator = TypeVar("Coordinator", bound=GroupCoordinator)


def register(
    group_log: GroupLog,
    group_type: GroupType,
    groups: OnDemand[Coordinator],
    *,
    takes_transactions: bool = False,
) -> OnDemand[Coordinator]:
    """Register a coordinator with the log of groups, and return it.

    ``takes_transactions`` says whether its reading takes records of transactions.
    """

    def begin_reading() -> Reading:
        if groups.existing is not None:
            return groups.existing.begin_reading()
        return _reading_on_demand(
            lambda: groups.make().begin_reading(), takes_transactions=takes_transactions
        )

    def has(group_id: GroupId) -> bool:
        return groups.existing is not None and groups.existing.has(group_id)

    group_log.register(
        RegisteredCoordinator(group_type, RECORD_TYPES[group_type], begin_reading, has)
    )
    return groups


def _reading_on_demand(begin: Callable[[], Reading], *, takes_transactions: bool) -> Reading:
    """Return a reading that calls ``begin`` for the real one at its first record.

    So a coordinator is not created if the log has none of its records.  ``takes_transactions``
    says whether the real reading takes records of transactions.
    """
    begun: list[Reading] = []

    def real() -> Reading:
        if not begun:
            begun.append(begin())
        return begun[0]

    def replay(key: bytes, value: bytes | None) -> None:
        real().replay(key, value)

    def replay_pending(partition: int, producer_id: int, key: bytes, value: bytes | None) -> None:
        take = real().replay_pending
        assert take is not None
        take(partition, producer_id, key, value)

    def end_transaction(partition: int, producer_id: int, is_commit: bool) -> None:
        # Only if there were records: a marker alone has nothing to end, and creates no coordinator.
        for reading in begun:
            assert reading.end_transaction is not None
            reading.end_transaction(partition, producer_id, is_commit)

    def finish() -> None:
        for reading in begun:
            reading.finish()

    if takes_transactions:
        return Reading(replay, finish, replay_pending, end_transaction)
    return Reading(replay, finish)


class ModernGroups:
    """The groups of KIP-848, none if their coordinator does not exist yet."""

    __slots__ = ("coordinator",)

    def __init__(self, coordinator: OnDemand[ModernGroupCoordinator]) -> None:
        self.coordinator = coordinator

    def find(self, group_id: GroupId) -> ModernGroup | None:
        """Return the group with this id; None if there is none."""
        existing = self.coordinator.existing
        return None if existing is None else existing.find(group_id)

    def has(self, group_id: GroupId) -> bool:
        """Whether a group of KIP-848 with this id exists."""
        existing = self.coordinator.existing
        return existing is not None and existing.has(group_id)

    def check_commit(
        self,
        committer: Committer,
        partitions: Iterable[TopicIdPartition],
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> None:
        """Raise if a member may not commit offsets of these partitions."""
        self.coordinator().check_commit(
            committer, partitions, api_version=api_version, is_transactional=is_transactional
        )

    def list_groups(self) -> tuple[ListedGroup, ...]:
        """Return all groups, in the order of their ids."""
        existing = self.coordinator.existing
        return () if existing is None else existing.list_groups()
