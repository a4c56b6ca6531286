"""The topic ``__consumer_offsets``, which both group coordinators write.

Records of share groups and of consumer groups are in one topic.  The group id determines the
partition of a group.  One reading of the topic fills both coordinators.  A group id belongs to one
type of group until that group is deleted.

A failed write may have lost records of either type.  So one method detects it
(`forget_what_failed`) and makes both coordinators read the log again.

    command ──▶ forget_what_failed ──▶ decide ──▶ append ──▶ replay ──▶ durable ──▶ reply
                        │
                        └── the log was cut: every coordinator reads the whole log again
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sharegroup.broker.cluster.coordinator_log import (
    NO_PRODUCER,
    CoordinatorLog,
    KeyAndValue,
    Marker,
)
from sharegroup.core.groups.share.sizes import GROUP_ID_CHARACTERS_MAX, check_new_group
from sharegroup.errors import GroupIdNotFound
from sharegroup.ids import GroupId, ProducerIdAndEpoch, group_partition
from sharegroup.protocol_enums import GroupType
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.batches.small_batches import TransactionalBatch

log = logging.getLogger(__name__)

TYPE_BYTES = 2
"""Bytes of the record type at the beginning of a record's key."""


class Reading(NamedTuple):
    """One coordinator's callbacks for a reading of the whole log.

    ``replay`` takes each record of the coordinator's types.  ``finish`` is called when all records
    were read.  Until then the coordinator keeps its previous state.  ``replay_pending`` takes a
    record of a transaction, after the topic's partition and the producer id.  ``end_transaction``
    takes partition, producer id, and whether the transaction was committed.
    """

    replay: Callable[[bytes, bytes | None], None]
    finish: Callable[[], None]
    replay_pending: Callable[[int, int, bytes, bytes | None], None] | None = None
    end_transaction: Callable[[int, int, bool], None] | None = None


class RegisteredCoordinator(NamedTuple):
    """A coordinator that is registered with the log.

    ``begin`` starts a reading of the records of ``record_types``.  ``has`` returns whether a group
    of this type exists.
    """

    group_type: GroupType
    record_types: frozenset[int]
    begin: Callable[[], Reading]
    has: Callable[[GroupId], bool]


class GroupLog:
    """Reads and writes ``__consumer_offsets`` for the coordinators of both kinds of groups."""

    __slots__ = ("_coordinators", "_log")

    def __init__(self, log_: CoordinatorLog) -> None:
        self._log = log_
        self._coordinators: list[RegisteredCoordinator] = []

    def register(self, coordinator: RegisteredCoordinator) -> None:
        """Register a coordinator; each one registers once, before the log is read."""
        self._coordinators.append(coordinator)

    def type_of(self, group_id: GroupId) -> GroupType | None:
        """Return the type of the group with this id, or None if there is no such group."""
        return next(
            (
                coordinator.group_type
                for coordinator in self._coordinators
                if coordinator.has(group_id)
            ),
            None,
        )

    def check_type(self, group_id: GroupId, group_type: GroupType) -> None:
        """Raise GroupIdNotFound if a group of another type has this id.

        Raise InvalidGroupId for an id that no new group may have, if there is no such group.
        """
        self.check_id(group_id)
        actual_type = self.type_of(group_id)
        if actual_type not in (None, group_type):
            raise GroupIdNotFound(
                f"group {group_id!r} is a {actual_type.value} group, not a {group_type.value} group"
            )

    def load(self) -> None:
        """Read the whole log and rebuild the state of both coordinators.

        Records of unknown types are ignored: another version of sharegroup wrote them.
        """
        by_type: dict[int, Reading] = {}
        readings = []
        for coordinator in self._coordinators:
            reading = coordinator.begin()
            readings.append(reading)
            by_type.update(dict.fromkeys(coordinator.record_types, reading))

        def transactional(partition: int, batch: TransactionalBatch) -> None:
            for _, key, value in batch.records:
                target = by_type.get(int.from_bytes(key[:TYPE_BYTES], "big"))
                if target is not None and target.replay_pending is not None:
                    target.replay_pending(partition, batch.producer_id, key, value)
            # A marker ends the transaction for every coordinator that has records of it in the
            # partition.
            for reading in readings:
                if batch.marker is not None and reading.end_transaction is not None:
                    reading.end_transaction(partition, batch.producer_id, batch.marker.is_commit)

        for _, key, value in self._log.records(transactional):
            target = by_type.get(int.from_bytes(key[:TYPE_BYTES], "big"))
            if target is not None:
                target.replay(key, value)
        for reading in readings:
            reading.finish()

    def append(
        self,
        group_id: GroupId,
        records: Sequence[KeyAndValue],
        *,
        producer: ProducerIdAndEpoch = NO_PRODUCER,
    ) -> Ticket:
        """Append records of one group as one batch, which may belong to a transaction."""
        return self._log.append(self._partition(group_id), records, producer=producer)

    def append_if_any(self, group_id: GroupId, records: Sequence[KeyAndValue]) -> Ticket | None:
        """Append records; without records, return the ticket of the group's last append.

        A decision without records can depend on earlier ones, so its reply waits for them.
        """
        return self.append(group_id, records) if records else self.last(group_id)

    def append_marker(self, partition: int, marker: Marker) -> Ticket:
        """Append the end of a transaction to a partition of the topic."""
        return self._log.append_marker(partition, marker)

    def partition_of(self, group_id: GroupId) -> int:
        """Return the partition of the topic that holds a group."""
        return self._partition(group_id)

    def last(self, group_id: GroupId) -> Ticket | None:
        """Return the last append to the group's partition; all earlier ones are durable with it."""
        if self._is_overlong(group_id):
            return None  # There is no such group, so nothing was written.
        return self._log.last(self._partition(group_id))

    def check_writable(self, group_id: GroupId) -> None:
        """Raise KafkaStorageError while the group's partition takes no writes.

        Raise InvalidGroupId for an id that no new group may have, if there is no such group.
        """
        self.check_id(group_id)
        self._log.writable_check(self._partition(group_id))()

    def forget_what_failed(self, group_id: GroupId | None = None) -> None:
        """Read the log again if records that were replayed have been lost in a failed write.

        Call this before each decision.  None checks the partitions of all groups.
        """
        if group_id is None or len(group_id) > GROUP_ID_CHARACTERS_MAX:
            # Finding the partition of a group whose id has 32,767 characters takes 3 ms.
            was_cut = self._log.was_cut_anywhere()
        else:
            was_cut = self._log.was_cut(self._partition(group_id))
        if was_cut:
            log.error("event=groups_reloaded reason='a group write failed'")
            self.load()

    def check_id(self, group_id: GroupId) -> None:
        """Raise InvalidGroupId for an id that no new group may have, if there is no such group."""
        if self._is_overlong(group_id):
            check_new_group(group_id)

    def _is_overlong(self, group_id: GroupId) -> bool:
        """Whether the id is too long for a new group and no existing group has it."""
        return len(group_id) > GROUP_ID_CHARACTERS_MAX and self.type_of(group_id) is None

    def _partition(self, group_id: GroupId) -> int:
        return group_partition(group_id, self._log.partition_count)
