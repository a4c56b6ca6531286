"""Initializes the share partitions of large topics before the heartbeat that needs them.

A first heartbeat initializes all partitions of the member's topics.  Up to `AT_ONCE` partitions are
initialized in the same plain call that decides the heartbeat.  More are prepared in slices first:

    heartbeat ──▶ prepare in slices ──▶ the same heartbeat again: all states are prepared, so it
                                        commits the group's record and the assignment

A group does not know a prepared state until the heartbeat commits it, so no member fetches from it.
Until then the group's offsets cannot be altered or deleted.  `ShareGroupCoordinator.agree` deletes
the prepared states that a crash leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sharegroup.broker.load.slices import Slices
from sharegroup.broker.share.persister import Persister
from sharegroup.core.groups.share.share_groups import Uninitialized
from sharegroup.errors import NonEmptyGroup
from sharegroup.ids import GroupId, SharePartitionKey
from sharegroup.storage.sync.tickets import Ticket

AT_ONCE = 256
"""Share partitions that are initialized in one plain call."""

PIECE = 64
"""Share partitions that are initialized between two turns of `Slices`."""


class _Preparation:
    """The prepared states of one group."""

    __slots__ = ("is_valid", "joining", "prepared", "tickets")

    def __init__(self) -> None:
        self.joining = 0
        """Heartbeats that wait for this preparation."""
        self.prepared: set[SharePartitionKey] = set()
        self.tickets: list[Ticket | None] = []
        self.is_valid = True
        """False after `ShareGroupCoordinator.agree`, which deletes states that no group knows."""


class StatePreparations:
    """The preparations of all groups in which a heartbeat waits for prepared states."""

    __slots__ = ("_by_group", "_share_coordinator")

    def __init__(self, share_coordinator: Persister) -> None:
        self._share_coordinator = share_coordinator
        self._by_group: dict[GroupId, _Preparation] = {}

    def check_none(self, group_id: GroupId) -> None:
        """Raise NonEmptyGroup while a member of the group is joining."""
        if group_id in self._by_group:
            raise NonEmptyGroup(f"group {group_id!r}: a member is joining")

    def invalidate(self) -> None:
        """Drop all preparations, because the states that no group knows were deleted."""
        for preparation in self._by_group.values():
            preparation.is_valid = False
        self._by_group.clear()

    def unprepared(self, missing: Sequence[Uninitialized]) -> Sequence[Uninitialized]:
        """Return those of the given share partitions of one group that have no prepared state."""
        preparation = self._by_group.get(missing[0].key.group_id) if missing else None
        if preparation is None or not preparation.prepared:
            return missing
        return [partition for partition in missing if partition.key not in preparation.prepared]

    def tickets(self, group_id: GroupId) -> list[Ticket | None]:
        """Return the writes of the prepared states."""
        preparation = self._by_group.get(group_id)
        return [] if preparation is None else preparation.tickets

    async def prepare(
        self,
        group_id: GroupId,
        missing: Sequence[Uninitialized],
        start_offset: Callable[[Uninitialized], int | None],
        slices: Slices,
    ) -> Preparing:
        """Initialize share partitions in slices; the result is kept until `Preparing.end`.

        ``start_offset`` returns the offset at which a share partition starts, or None if its topic
        is gone.
        """
        preparation = self._by_group.setdefault(group_id, _Preparation())
        preparation.joining += 1
        preparing = Preparing(self._by_group, group_id, preparation)
        try:
            # Grouped by partition of the state topic, so that one write holds many states.
            partition_of = self._share_coordinator.partition_of
            by_partition: dict[int, list[Uninitialized]] = {}
            for piece in _pieces(missing):
                for partition in piece:
                    by_partition.setdefault(partition_of(partition.key), []).append(partition)
                await slices.turn()
            for partitions in by_partition.values():
                for piece in _pieces(partitions):
                    self._prepare_piece(preparation, piece, start_offset)
                    await slices.turn()
                    # The heartbeat that follows finds the states missing again, and starts a new
                    # preparation.
                    if not preparation.is_valid:
                        return preparing
        # Also if the heartbeat is cancelled: otherwise nobody could ever alter the group's offsets.
        except BaseException:
            preparing.end()
            raise
        return preparing

    def _prepare_piece(
        self,
        preparation: _Preparation,
        piece: Sequence[Uninitialized],
        start_offset: Callable[[Uninitialized], int | None],
    ) -> None:
        starts: dict[SharePartitionKey, int] = {}
        for partition in piece:
            if partition.key not in preparation.prepared:
                offset = start_offset(partition)
                if offset is not None:
                    starts[partition.key] = offset
        if starts:
            tickets = self._share_coordinator.initialize_all(
                starts, state_epoch=piece[0].state_epoch
            )
            preparation.tickets += tickets
            preparation.prepared.update(starts)


class Preparing:
    """The use of a group's preparation by one heartbeat; call `end` when it is over."""

    __slots__ = ("_by_group", "_group_id", "_preparation")

    def __init__(
        self, by_group: dict[GroupId, _Preparation], group_id: GroupId, preparation: _Preparation
    ) -> None:
        self._by_group = by_group
        self._group_id = group_id
        self._preparation = preparation

    def end(self) -> None:
        """End the use, after the heartbeat was decided or failed."""
        self._preparation.joining -= 1
        # Another heartbeat may have begun a new preparation after `invalidate`.
        if not self._preparation.joining and self._by_group.get(self._group_id) is (
            self._preparation
        ):
            del self._by_group[self._group_id]


def _pieces(missing: Sequence[Uninitialized]) -> Iterable[Sequence[Uninitialized]]:
    return (missing[first : first + PIECE] for first in range(0, len(missing), PIECE))
