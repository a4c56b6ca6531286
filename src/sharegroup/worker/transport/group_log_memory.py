"""In-memory consumer groups for `App.test`: members, assignments, and committed offsets.

A member's changes are made inside its `read`, as in the real consumer: partitions are revoked
before they are given to others.  The partitions of a topic are distributed over its members in the
order in which these have joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sharegroup.errors import OffsetMetadataTooLarge
from sharegroup.worker.consuming.group_log import PartitionOwner
from sharegroup.worker.ports import BufferedRecord
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryRecord
from sharegroup.worker.transport.memory_source import Place, Standing


class MemoryConsumerGroup:
    """One consumer group with its members, for all processes of a test."""

    __slots__ = ("_log", "_members", "metadata_max", "name")

    def __init__(self, name: str, log: MemoryLog) -> None:
        self.name = name
        self.metadata_max = 4_096
        """The broker's ``offset.metadata.max.bytes``."""
        self._log = log
        self._members: dict[str, list[MemoryGroupLog]] = {}

    def standing(self, place: Place) -> Standing:
        """The state of a record in this group."""
        committed = self._log.committed.get((self.name, place.topic, place.partition))
        is_committed = committed is not None and place.offset < committed.offset
        members = self._members.get(place.topic, ())
        if is_committed or any(member.is_finished(place) for member in members):
            return Standing.ACCEPTED
        return Standing.WAITING

    def join(self, member: MemoryGroupLog) -> None:
        """Add a member."""
        self._members.setdefault(member.topic, []).append(member)
        self.rebalance(member.topic)

    def leave(self, member: MemoryGroupLog) -> None:
        """Remove a member; its partitions are free."""
        members = self._members.get(member.topic, [])
        if member in members:
            members.remove(member)
        self.rebalance(member.topic)

    def given(self, member: MemoryGroupLog) -> set[int]:
        """The partitions that the member is to own."""
        members = self._members[member.topic]
        count = len(self._log.partitions(member.topic))
        return set(range(members.index(member), count, len(members)))

    def free(self, topic: str) -> set[int]:
        """The partitions without an owner."""
        owned = {number for member in self._members[topic] for number in member.owned}
        return set(range(len(self._log.partitions(topic)))) - owned

    def rebalance(self, topic: str) -> None:
        """Let the members of a topic look at their assignment."""
        for member in self._members.get(topic, ()):
            member.notice()

    # Offsets.

    def committed(self, topic: str, partition: int) -> Committed | None:
        """The committed offset of a partition."""
        return self._log.committed.get((self.name, topic, partition))

    def commit(self, topic: str, offsets: Mapping[int, Committed]) -> None:
        """Commit offsets; raises OffsetMetadataTooLarge, as a broker does."""
        for partition, committed in offsets.items():
            if len(committed.metadata) > self.metadata_max:
                raise OffsetMetadataTooLarge(
                    f"{len(committed.metadata)} characters; expected {self.metadata_max} or fewer"
                )
            self._log.committed[self.name, topic, partition] = committed


class MemoryGroupLog:
    """Reads one topic as a member of an in-memory consumer group; a `GroupLog`."""

    def __init__(
        self, member_id: str, group: MemoryConsumerGroup, topic: str, log: MemoryLog
    ) -> None:
        self.member_id = member_id
        self.topic = topic
        self.owned: dict[int, int] = {}
        """The position in each owned partition."""
        self._group = group
        self._log = log
        self._paused: set[int] = set()
        self._owner: PartitionOwner | None = None
        self._noticed = asyncio.Event()
        self._is_woken = False
        self._is_cut = False

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._group.name

    @property
    def is_joined(self) -> bool:
        """True until `cut`."""
        return not self._is_cut

    async def start(self, owner: PartitionOwner) -> None:
        """Join the group."""
        self._owner = owner
        self._log.on_append(self._appended)
        self._group.join(self)

    async def read(self, room: int, wait_seconds: float) -> Sequence[MemoryRecord]:
        """Return up to ``room`` records, and make changes of the assignment."""
        clock = self._log.clock
        deadline = clock.now() + wait_seconds
        alarm = clock.call_at(deadline, self._noticed.set, is_idle=True)
        try:
            while True:
                self._noticed.clear()
                if not self._is_cut:
                    await self._change()
                if records := self._read(room):
                    return records
                # After `cut` this never returns, as in a process that is dead.
                if (self._is_woken or clock.now() >= deadline) and not self._is_cut:
                    self._is_woken = False
                    return ()
                await self._noticed.wait()
        finally:
            alarm.cancel()

    def is_finished(self, place: Place) -> bool:
        """Whether this process has finished a record."""
        owner = self._owner
        return owner is not None and owner.is_finished(place.partition, place.offset)

    def notice(self) -> None:
        """Let the pending read look again."""
        self._noticed.set()

    def wake(self) -> None:
        """Let the pending `read` return."""
        self._is_woken = True
        self._noticed.set()

    def pause(self, partition: int) -> None:
        """Stop reading a partition."""
        self._paused.add(partition)

    def resume(self, partition: int) -> None:
        """Read a paused partition again."""
        self._paused.discard(partition)
        self._noticed.set()

    def seek(self, partition: int, offset: int) -> None:
        """Read a partition from this offset on."""
        self.owned[partition] = offset
        self._noticed.set()

    async def commit(
        self, offsets: Mapping[int, Committed], records: Sequence[BufferedRecord] = ()
    ) -> None:
        """Commit offsets of owned partitions, and write records with them."""
        if self._is_cut:
            await asyncio.Event().wait()
        if foreign := offsets.keys() - self.owned.keys():
            raise OwnershipLost(f"partitions {sorted(foreign)} are not assigned to this member")
        for topic, _, _ in records:
            if (error := self._log.failing(topic)) is not None:
                raise error
        self._group.commit(self.topic, offsets)
        for topic, value, options in records:
            self._log.append(topic, value, **options)

    async def close(self, within_seconds: float) -> None:  # noqa: ARG002  It takes no time.
        """Give the partitions up, and leave the group."""
        if self._is_cut or self._owner is None:
            return
        if self.owned:
            await self._owner.revoked(sorted(self.owned))
        self._leave()

    def cut(self) -> None:
        """Simulate the death of the process: others get its partitions, unfinished as they are."""
        if not self._is_cut and self._owner is not None:
            self._leave()
        self._is_cut = True

    async def lose(self) -> None:
        """Take all partitions away, as after a session that has ended."""
        assert self._owner is not None, "it was started"
        partitions = sorted(self.owned)
        self.owned.clear()
        await self._owner.lost(partitions)
        self.notice()

    def _leave(self) -> None:
        self.owned.clear()
        self._log.forget(self._appended)
        self._group.leave(self)

    async def _change(self) -> None:
        assert self._owner is not None, "it was started"
        given = self._group.given(self)
        if taken := sorted(self.owned.keys() - given):
            await self._owner.revoked(taken)
            for number in taken:
                del self.owned[number]
            self._group.rebalance(self.topic)
        if new := sorted((given - self.owned.keys()) & self._group.free(self.topic)):
            committed = {number: self._group.committed(self.topic, number) for number in new}
            self._paused -= set(new)
            for number, offset in committed.items():
                self.owned[number] = 0 if offset is None else offset.offset
            await self._owner.assigned(committed)

    def _read(self, room: int) -> list[MemoryRecord]:
        taken: list[MemoryRecord] = []
        if self._is_cut:
            return taken
        for number, position in self.owned.items():
            if number in self._paused or len(taken) >= room:
                continue
            log = self._log.partitions(self.topic)[number]
            records = log[position : position + room - len(taken)]
            self.owned[number] = position + len(records)
            taken += records
        return taken

    def _appended(self, topic: str) -> None:
        if topic == self.topic:
            self._noticed.set()
