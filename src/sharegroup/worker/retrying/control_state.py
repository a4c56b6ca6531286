"""The commands for waiting records of one group, as far as its control topic has been read.

    control topic --read--> commands that wait, by partition     a mover takes them (`steering`)
                            marks: offsets that were moved       a new owner passes them over
                            questions: who holds this record?    the scheduler answers

Marks end when the offset of their partition passes them.  Commands, questions and other answers end
after `KEPT_MS`: otherwise commands in partitions that nobody owns any more would count for ever.

Pure, but for the wait in `caught_up`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice

from sharegroup.waiting.control_records import (
    ANSWER,
    COMMAND,
    Command,
    ControlRecord,
    Forgotten,
    Place,
    Reply,
)
from sharegroup.worker.retrying.tier_log import TierPartition

log = logging.getLogger(__name__)

COMMANDS_MAX = 100_000
"""Limit of the commands that wait in memory; later ones are taken when others are answered."""

KEPT_MS = 24 * 60 * 60 * 1000
"""How long commands, questions and answers are kept; those who gave a command wait for seconds."""
GRACE_MS = 10 * 60 * 1000
"""How long they are kept at least after a process has read them.

Workers that were away for a day still carry out what waits for them.
"""
Key = tuple[str, Place | str]


class ControlState:
    """Commands, marks and questions of one group; shared by the movers of a scheduler."""

    __slots__ = (
        "_begun",
        "_commands",
        "_count",
        "_ended",
        "_ends",
        "_marks",
        "_progress",
        "hurry",
        "questions",
    )

    def __init__(self) -> None:
        self._commands: dict[TierPartition, dict[int, Command]] = {}
        self._count = 0
        self._marks: dict[TierPartition, dict[int, str]] = {}
        self._ends: dict[Key, int] = {}
        """When the records end that nothing else deletes; up to `COMMANDS_MAX` are known."""
        self.questions: dict[str, Command] = {}
        """The questions that nobody has answered, by the id of the record."""
        self.hurry = asyncio.Event()
        """Set when the topic should be read now."""
        self._begun = 0
        self._ended = 0
        self._progress = asyncio.Event()

    # Reading.

    def reading(self) -> int:
        """Note that a read up to the end begins; returns its number for `read`."""
        self.hurry.clear()
        self._begun += 1
        return self._begun

    def read(self, records: Iterable[ControlRecord], number: int, now_ms: int) -> None:
        """Take the records of a read that has reached the end; ``now_ms`` is the calendar's."""
        for record in records:
            match record:
                case Command():
                    self._add(record)
                    self._note_end(COMMAND, record, record.asked_ms, now_ms)
                case Reply():
                    self._answered(record)
                    if record.answer.is_final:
                        self._ends.pop((COMMAND, record.place or record.record_id), None)
                        self._ends.pop((ANSWER, record.place or record.record_id), None)
                    else:
                        self._note_end(ANSWER, record, record.at_ms, now_ms)
                case Forgotten(kind, subject):
                    self.forget(kind, subject)
        self._ended = number
        self._progress.set()

    async def caught_up(self) -> None:
        """Wait until everything is read that was in the topic when this was called."""
        wanted = self._begun + 1
        while self._ended < wanted:
            self.hurry.set()
            self._progress.clear()
            await self._progress.wait()

    # The parts of one partition.

    def commands_of(self, partition: TierPartition, limit: int) -> list[Command]:
        """Return up to ``limit`` commands for records of a partition, the oldest first."""
        return list(islice(self._commands.get(partition, {}).values(), limit))

    def postpone(self, partition: TierPartition, offsets: Iterable[int]) -> None:
        """Put the commands for these offsets after the others of their partition."""
        commands = self._commands.get(partition, {})
        for offset in offsets:
            if offset in commands:
                commands[offset] = commands.pop(offset)

    def has_commands(self, partition: TierPartition) -> bool:
        """Whether commands for records of a partition wait."""
        return partition in self._commands

    def marks_of(self, partition: TierPartition) -> dict[int, str]:
        """Return the offsets of a partition's records that were moved, with their ids."""
        return dict(self._marks.get(partition, {}))

    def ended_of(
        self, partition: TierPartition, now_ms: int, limit: int, *, all_commands: bool
    ) -> list[Key]:
        """Return the keys about a partition whose time is over; ``all_commands``: also of others.

        Nobody but the owner of a partition deletes answers, because marks have the same keys.
        """
        ended = (
            (kind, subject)
            for (kind, subject), end_ms in self._ends.items()
            if end_ms <= now_ms
            and (
                subject[:2] == partition
                if isinstance(subject, Place) and not (all_commands and kind == COMMAND)
                else all_commands
            )
        )
        return list(islice(ended, limit))

    def settle(self, replies: Iterable[Reply], forgotten: Iterable[Place]) -> None:
        """Note what this process has committed, before it is read again."""
        for reply in replies:
            self._answered(reply)
        for place in forgotten:
            self.forget(ANSWER, place)

    def _add(self, command: Command) -> None:
        place = command.place
        if place is None:
            self.questions[command.record_id] = command
            return
        commands = self._commands.setdefault(TierPartition(*place[:2]), {})
        if place.offset not in commands:
            if self._count >= COMMANDS_MAX:
                log.warning(
                    "event=command.left_out topic=%s partition=%d offset=%d reason='%d commands "
                    "wait' action='give it again when fewer wait'",
                    *place, COMMANDS_MAX,
                )  # fmt: skip
                return
            self._count += 1
        commands[place.offset] = command

    def _answered(self, reply: Reply) -> None:
        place = reply.place
        if place is None:
            self.questions.pop(reply.record_id, None)
            return
        partition = TierPartition(*place[:2])
        command = self._commands.get(partition, {}).get(place.offset)
        # Another one may have been given since.
        if command is not None and command.ask == reply.ask:
            self._forget_command(place)
        if reply.answer.is_final:
            self._marks.setdefault(partition, {})[place.offset] = reply.record_id

    def _note_end(self, kind: str, record: Command | Reply, at_ms: int, now_ms: int) -> None:
        key = (kind, record.place or record.record_id)
        if key in self._ends or len(self._ends) < COMMANDS_MAX:
            # A clock may be wrong, of the process that wrote it or of this one.
            self._ends[key] = max(min(at_ms, now_ms) + KEPT_MS, now_ms + GRACE_MS)

    def forget(self, kind: str, subject: Place | str) -> None:
        """Drop what a record without a value deletes."""
        self._ends.pop((kind, subject), None)
        if isinstance(subject, str):
            self.questions.pop(subject, None)
            return
        if kind == COMMAND:
            self._forget_command(subject)
            return
        partition = TierPartition(*subject[:2])
        marks = self._marks.get(partition, {})
        marks.pop(subject.offset, None)
        if not marks:
            self._marks.pop(partition, None)

    def _forget_command(self, place: Place) -> None:
        partition = TierPartition(*place[:2])
        commands = self._commands.get(partition, {})
        if commands.pop(place.offset, None) is not None:
            self._count -= 1
        if not commands:
            self._commands.pop(partition, None)
