"""Moves the records of one partition in transactions, and carries out the commands for them.

    commands, due records --> one transaction: writes, answers, the offset --> shelf
                                        `- failed: back on the shelf, with a backoff

    run       the record goes to the group's own topic at once
    cancel    it goes there, too, and says so: the worker that gets it makes it a dead letter
    gone      it is not there any more; the process that asked looks where it is
    refused   the broker does not take the record, so it waits as before

The offset with its metadata is in the transaction, so exactly one owner moves a record.  Offsets
that the metadata cannot name get a mark in the control topic.  A mark is forgotten when the offset
has passed it; commands and other answers after a day (`tidy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from sharegroup.dead_letters.story_headers import CANCELLED_BY, DUE, story_of
from sharegroup.dead_letters.topics import own_topic
from sharegroup.errors import KafkaError
from sharegroup.waiting.control_records import (
    ANSWER,
    COMMAND,
    Answer,
    Command,
    Intent,
    Place,
    Reply,
    encoded,
    key_of,
)
from sharegroup.waiting.done_offsets import OFFSETS_MAX
from sharegroup.waiting.retry_topics import CONTROL_PARTITION, control_topic, due_topic
from sharegroup.worker.ports import Header, WorkerClock, WrittenRecord
from sharegroup.worker.retrying.control_state import ControlState, Key
from sharegroup.worker.retrying.shelf import Shelf
from sharegroup.worker.retrying.tier_log import Committed, TierPartition
from sharegroup.worker.retrying.tier_moves import MovedRecord, MovesRefused, TierMoves
from sharegroup.worker.retrying.waiting import (
    TIERS_OWN,
    Moment,
    ShelvedRecord,
    TierWrite,
    waiting_of,
)

COMMANDS_TOGETHER = 100
"""The maximum number of commands that one transaction carries out."""
COMMANDED_BYTES = 8 * 1024 * 1024
"""The bytes of records after which a transaction takes no more commands."""
FORGOTTEN_TOGETHER = 200
"""The maximum number of marks that one transaction forgets."""
NOTHING_REFUSED: Mapping[int, KafkaError] = MappingProxyType({})
NO_ID = "-"
"""In the mark of a record that another program wrote, without an id."""


class Taken(NamedTuple):
    """A record for a command, with the time at which it is ready without one."""

    waiting: ShelvedRecord
    ready_ms: int
    is_read: bool
    """Whether it was on the shelf."""


class Steering:
    """Moves records of one partition, and carries out commands, while this process owns it."""

    __slots__ = ("_clock", "_group", "_marks", "_moves", "_shelf", "control", "partition")

    def __init__(
        self,
        group: str,
        partition: TierPartition,
        shelf: Shelf,
        *,
        moves: TierMoves,
        control: ControlState,
        clock: WorkerClock,
    ) -> None:
        self.partition = partition
        self.control = control
        self._group = group
        self._shelf = shelf
        self._moves = moves
        self._clock = clock
        self._marks: dict[int, str] = {}
        """The ids of the records with a mark, by offset.

        If the topic was made anew, another record has the offset, which the mark does not mean.
        """

    async def begin(self) -> None:
        """Pass over the records that former owners have moved; before anything is moved here.

        Their transactions have ended, because the committed offset was read after them.
        """
        await self.control.caught_up()
        self._marks = self.control.marks_of(self.partition)
        for ready, waiting in self._shelf.take_at(self._marks.keys()):
            if self.is_marked(waiting):
                self._shelf.done([waiting])
            else:
                self._shelf.put_back(waiting, ready)

    def is_marked(self, waiting: ShelvedRecord) -> bool:
        """Whether the topic says that this record was moved."""
        mark = self._marks.get(waiting.record.offset)
        return mark is not None and mark == _id_of(waiting)

    @property
    def has_commands(self) -> bool:
        """Whether commands for records of this partition wait."""
        return self.control.has_commands(self.partition)

    async def move(
        self, taken: Sequence[ShelvedRecord], writes: Sequence[TierWrite]
    ) -> Sequence[WrittenRecord]:
        """Write these records and commit; raises KafkaError if nothing was moved."""
        offsets = [waiting.record.offset for waiting in taken]
        committed = self._shelf.committed_with(offsets)
        marks = [
            self._reply(offset, _id_of(waiting), Answer.MOVED)
            for offset, waiting in zip(offsets, taken, strict=True)
            if offset - committed.offset >= OFFSETS_MAX
        ]
        records = [
            MovedRecord(write.topic, waiting.record.key, waiting.record.value, write.headers)
            for waiting, write in zip(taken, writes, strict=True)
        ]
        written = await self._commit(records, marks, committed)
        self._shelf.done(taken)
        return written[: len(records)]

    async def obey(self) -> None:
        """Carry out the next commands; raises KafkaError if that failed for all or some of them.

        Commands whose records cannot be written now come last from then on.  Those that the broker
        refuses for good are answered so, and end.
        """
        commands = self.control.commands_of(self.partition, COMMANDS_TOGETHER)
        by_offset = {command.place.offset: command for command in commands if command.place}
        found: dict[int, Taken] = {}
        try:
            by_offset = await self._find(by_offset, found)
            written = [offset for offset in by_offset if _is_meant(by_offset, found, offset)]
            try:
                await self._carry_out(by_offset, found)
            except MovesRefused as refusal:
                errors = {
                    written[index]: error
                    for index, error in refusal.errors.items()
                    if index < len(written)
                }
                again = {offset for offset, error in errors.items() if error.retriable}
                self.control.postpone(self.partition, again)
                left = {at: command for at, command in by_offset.items() if at not in again}
                if errors and left:
                    await self._carry_out(left, found, errors)
                if again or not errors:
                    raise
        finally:
            # Those that were not moved: all of them after an error.
            for taken in found.values():
                if taken.is_read:
                    self._shelf.put_back(taken.waiting, taken.ready_ms)

    async def tidy(self) -> bool:
        """Delete control records whose time is over; returns whether there may be more of them.

        One owner does so for the commands in partitions that nobody owns, and for questions.
        """
        ended = self.control.ended_of(
            self.partition,
            self._clock.wall_ms(),
            FORGOTTEN_TOGETHER,
            all_commands=self.partition == (due_topic(self._group), 0),
        )
        committed = self._shelf.committed_with(())
        passed = any(offset < committed.offset for offset in self._marks)
        if ended or passed:
            await self._commit([], [], committed, ended)
            for kind, subject in ended:
                self.control.forget(kind, subject)
        return len(ended) == FORGOTTEN_TOGETHER

    async def _carry_out(
        self,
        commands: dict[int, Command],
        found: dict[int, Taken],
        refused: Mapping[int, KafkaError] = NOTHING_REFUSED,
    ) -> None:
        now = Moment.now(self._clock)
        records, replies = [], []
        meant: dict[int, Taken] = {}
        for offset, command in commands.items():
            answer, why = Answer.GONE, ""
            if (error := refused.get(offset)) is not None:
                answer, why = Answer.REFUSED, f"{type(error).__name__}: {error}"
            elif _is_meant(commands, found, offset):
                answer = Answer.DONE
                meant[offset] = found[offset]
                records.append(_commanded(found[offset].waiting, command, now, self._group))
            elif self._marks.get(offset) == command.record_id:
                # The answer has the key of the mark, which must stay one.
                answer = Answer.MOVED
            reply = self._reply(offset, command.record_id, answer, command.ask)
            replies.append(replace(reply, why=why))
        read = [offset for offset, taken in meant.items() if taken.is_read]
        await self._commit(records, replies, self._shelf.committed_with(read))
        self._shelf.done([taken.waiting for taken in meant.values() if taken.is_read])
        # Those that are not read yet have a mark, and are passed over when they are.  But some may
        # have come to the shelf while the transaction was under way.
        unread = meant.keys() - set(read)
        self._shelf.done([waiting for _, waiting in self._shelf.take_at(unread)])
        for offset in meant:
            del found[offset]

    async def _find(
        self, commands: dict[int, Command], found: dict[int, Taken]
    ) -> dict[int, Command]:
        """Add the records that are still here: taken from the shelf, or read from the log.

        Returns the commands that one transaction carries out.
        """
        here = {
            offset
            for offset in self._shelf.not_moved(commands)
            if self._marks.get(offset) != commands[offset].record_id
        }
        for ready, waiting in self._shelf.take_at(here):
            found[waiting.record.offset] = Taken(waiting, ready, is_read=True)
        together: dict[int, Command] = {}
        size = 0
        for offset, command in commands.items():
            if size >= COMMANDED_BYTES:
                break
            together[offset] = command
            if offset in here and offset not in found:
                record = await self._moves.record_at(self.partition, offset)
                if record is not None:
                    waiting = waiting_of(record, Moment.now(self._clock))
                    found[offset] = Taken(waiting, 0, is_read=False)
            if offset in found:
                size += found[offset].waiting.size
        return together

    async def _commit(
        self,
        records: Sequence[MovedRecord],
        replies: Sequence[Reply],
        committed: Committed,
        ended: Sequence[Key] = (),
    ) -> Sequence[WrittenRecord]:
        topic = control_topic(self._group)
        forgotten = list(
            islice((it for it in self._marks if it < committed.offset), FORGOTTEN_TOGETHER)
        )
        pairs: list[tuple[bytes, bytes | None]] = [encoded(reply) for reply in replies]
        # Only now: a command that is given while this one is carried out has the same key.
        pairs += [
            (key_of(kind, self._place(offset)), None)
            for kind in (COMMAND, ANSWER)
            for offset in forgotten
        ]
        pairs += [(key_of(*key), None) for key in ended]
        control = [MovedRecord(topic, *pair, partition=CONTROL_PARTITION) for pair in pairs]
        written = await self._moves.move(self.partition, [*records, *control], committed)
        for offset in forgotten:
            del self._marks[offset]
        for reply in replies:
            if reply.place is not None and reply.answer.is_final:
                self._marks[reply.place.offset] = reply.record_id
        self.control.settle(replies, map(self._place, forgotten))
        self._shelf.keep(committed)
        return written

    def _reply(self, offset: int, record_id: str, answer: Answer, ask: str = "") -> Reply:
        return Reply(
            record_id=record_id,
            answer=answer,
            place=self._place(offset),
            ask=ask,
            at_ms=self._clock.wall_ms(),
        )

    def _place(self, offset: int) -> Place:
        return Place(*self.partition, offset)


def _is_meant(commands: dict[int, Command], found: dict[int, Taken], offset: int) -> bool:
    """Whether the record at this offset is that of its command.

    One with another id stays: the topic was made anew since the command was given.
    """
    taken = found.get(offset)
    return taken is not None and _id_of(taken.waiting) == commands[offset].record_id


def _id_of(waiting: ShelvedRecord) -> str:
    return story_of(waiting.record.headers).id or NO_ID


def _commanded(waiting: ShelvedRecord, command: Command, now: Moment, group: str) -> MovedRecord:
    """Return the record that goes to the group's own topic instead of its next tier."""
    dropped = (*TIERS_OWN, DUE, CANCELLED_BY)
    record = waiting.record
    headers: list[Header] = [header for header in record.headers if header[0] not in dropped]
    headers.append((DUE, str(now.wall_ms).encode("ascii")))
    if command.intent is Intent.CANCEL:
        headers.append((CANCELLED_BY, (command.by or NO_ID).encode()))
    return MovedRecord(own_topic(group), record.key, record.value, tuple(headers))
