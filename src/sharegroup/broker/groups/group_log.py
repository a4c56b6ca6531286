"""``__consumer_offsets``: the one log of the two coordinators of groups.

Share groups and consumer groups live in one topic, each group in the partition of its id, and
one read of it fills both coordinators.  They share their ids, too: an id is of one kind of group
until that group is deleted.  A write that failed may have taken records of either
kind, so there is one place that notices (`forget_what_failed`), and it lets both begin anew.

    command ──▶ forget_what_failed ──▶ decide ──▶ append ──▶ replay ──▶ durable ──▶ reply
                        │
                        └── something was cut: every reader gets a `Reading` of the whole log
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from sharegroup.broker.cluster.coordinator_log import CoordinatorLog, KeyAndValue
from sharegroup.errors import GroupIdNotFound, KafkaStorageError, NotCoordinator
from sharegroup.ids import GroupId, group_partition
from sharegroup.storage.tickets import Ticket

log = logging.getLogger(__name__)

TYPE_BYTES = 2
"""A record's key begins with its type."""


class Kind(Enum):
    """The kinds of groups, as ListGroups calls their types."""

    SHARE = "share"
    CLASSIC = "classic"


class Reading(NamedTuple):
    """One coordinator's part in reading the log anew.

    ``replay`` takes each of its records; ``finish`` is called when all were read, and only then
    may what the coordinator knew before be forgotten.
    """

    replay: Callable[[bytes, bytes | None], None]
    finish: Callable[[], None]


class Keeper(NamedTuple):
    """A coordinator as the log knows it.

    Records of its types are ``begin()``'s whenever the log is read; ``has`` says whether a group
    of this kind exists.
    """

    kind: Kind
    record_types: frozenset[int]
    begin: Callable[[], Reading]
    has: Callable[[GroupId], bool]


@contextmanager
def as_a_coordinator() -> Iterator[None]:
    """A disk that fails is a coordinator that moved, as in Kafka: members try again.

    Every client takes KAFKA_STORAGE_ERROR for the end of its membership.
    """
    try:
        yield
    except KafkaStorageError as error:
        raise NotCoordinator(str(error)) from error


class GroupLog:
    """See the module's text."""

    __slots__ = ("_keepers", "_log")

    def __init__(self, log_: CoordinatorLog) -> None:
        self._log = log_
        self._keepers: list[Keeper] = []

    def kept_by(self, keeper: Keeper) -> None:
        """Every coordinator says so once, before anything is read."""
        self._keepers.append(keeper)

    def kind_of(self, group_id: GroupId) -> Kind | None:
        """None: there is no group of this id."""
        return next((one.kind for one in self._keepers if one.has(group_id)), None)

    def check_kind(self, group_id: GroupId, kind: Kind) -> None:
        """Raise GroupIdNotFound when the id is that of a group of another kind."""
        found = self.kind_of(group_id)
        if found not in (None, kind):
            raise GroupIdNotFound(
                f"group {group_id!r} is a {found.value} group, not a {kind.value} group"
            )

    def load(self) -> None:
        """Read everything; a type that nobody reads is of a version that is not this one."""
        by_type: dict[int, Reading] = {}
        readings = []
        for keeper in self._keepers:
            reading = keeper.begin()
            readings.append(reading)
            by_type.update(dict.fromkeys(keeper.record_types, reading))
        for _, key, value in self._log.records():
            found = by_type.get(int.from_bytes(key[:TYPE_BYTES], "big"))
            if found is not None:
                found.replay(key, value)
        for reading in readings:
            reading.finish()

    def append(self, group_id: GroupId, records: Sequence[KeyAndValue]) -> Ticket:
        """Write records of one group as one batch."""
        return self._log.append(self._partition(group_id), records)

    def last(self, group_id: GroupId) -> Ticket | None:
        """When this is durable, so is all that was written of the group."""
        return self._log.last(self._partition(group_id))

    def check_writable(self, group_id: GroupId) -> None:
        """Raise KafkaStorageError while nothing of this group could be kept."""
        self._log.check_writable(self._partition(group_id))

    def forget_what_failed(self, group_id: GroupId | None = None) -> None:
        """Before anything is decided on what never happened; None stands for all groups."""
        if group_id is None:
            was_cut = self._log.was_cut_anywhere()
        else:
            was_cut = self._log.was_cut(self._partition(group_id))
        if was_cut:
            log.error("event=groups_reloaded reason='a group write failed'")
            self.load()

    def _partition(self, group_id: GroupId) -> int:
        return group_partition(group_id, self._log.partition_count)
