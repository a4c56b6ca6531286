"""Reads the waiting records of a group, and gives commands for them.

read      retry topics from the offset that the scheduler has committed, without what it moved
command   one for each place of the record, then wait for the answers
            done    moved by the command
            refused the broker does not take it: it waits as before
            gone    it moved by itself meanwhile: look where it is now, and ask again
no place  ask whether a process holds it; otherwise it is too late
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from secrets import token_hex
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

from sharegroup.client.admin.consumer_groups import list_consumer_group_offsets
from sharegroup.client.admin.topics import describe_topics, list_topics
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.record_reading import PartitionRange, partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.produce.producer import Producer
from sharegroup.client.settings.client_config import (
    ClientConfig,
    ProducerOptions,
    ReadingConfig,
    config_from,
    options_of,
)
from sharegroup.errors import GroupIdNotFound, InvalidConfig, KafkaError, UnknownTopicOrPartition
from sharegroup.login import login
from sharegroup.waiting.control_records import (
    Answer,
    Command,
    ControlRecord,
    Intent,
    Place,
    Reply,
    encoded,
)
from sharegroup.waiting.control_topic import ControlTopic, follow_control
from sharegroup.waiting.done_offsets import read as done_above
from sharegroup.waiting.retry_topics import control_topic, is_tier_topic, scheduler_group
from sharegroup.waiting.waiting_filter import EVERY_RECORD, WaitingFilter, WaitingRecord

ANSWER_SECONDS = 30.0
"""How long the owners of the partitions have to answer; a new one comes after 10 s or more."""
HELD_SECONDS = 3.0
"""How long processes have to say that they hold a record; they look each second."""
LOOK_SECONDS = 0.2
ROUNDS_MAX = 5
"""How often a record that moved on by itself is looked for, and asked for again."""
IDS_MAX = 1_000
"""The largest number of records in one call of `run` or `cancel`; a job takes any number."""


class Outcome(StrEnum):
    """What became of a command for a record."""

    DONE = "done"
    TOO_LATE = "too-late"
    """It does not wait any more: it runs, has run, or never waited."""
    HELD = "held"
    """A process holds it, for a retry within seconds; `Steered.member` names the process."""
    UNANSWERED = "unanswered"
    """No worker has answered.  The command stays for a day, and is carried out when one runs."""
    REFUSED = "refused"
    """The broker does not take the record, which waits as before; `Steered.why` has its reason."""


class Steered(NamedTuple):
    """The outcome of a command for one record."""

    outcome: Outcome
    member: str = ""
    why: str = ""


class TierRange(NamedTuple):
    """The part of a retry topic's partition that waits: [first, end) without ``done``."""

    unread: PartitionRange
    done: frozenset[int]


@dataclass(slots=True)
class _Round:
    """The commands of one round and their answers."""

    asked: dict[str, str] = field(default_factory=dict)
    """The id of the record by the name of the command."""
    at: dict[Place | str, str] = field(default_factory=dict)
    """The name of the command by place, or by the record's id in a question."""
    answers: dict[str, Answer] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    """The commands that have been read back from the topic."""
    replacing: set[str] = field(default_factory=set)
    """Later commands of others for the same records."""

    def take(self, record: ControlRecord) -> None:
        """Note an answer to one of the commands."""
        if isinstance(record, Command):
            self._note_command(record)
            return
        if not isinstance(record, Reply):
            return
        if record.ask in self.asked:
            self._note(record.ask, record)
            return
        # Somebody else's command for the same record: it has replaced this one if it was later.
        ask = self.at.get(record.place or record.record_id)
        if ask is None or ask in self.answers:
            return
        if record.answer.is_final:
            self.answers[ask] = Answer.GONE
        elif record.record_id == self.asked[ask] and (
            # A refusal of an earlier command says nothing about this one, which follows it.
            record.answer in (Answer.GONE, Answer.HELD) or record.ask in self.replacing
        ):
            self._note(ask, record)

    def _note_command(self, command: Command) -> None:
        if command.ask in self.asked:
            self.written.add(command.ask)
        elif self.at.get(command.place or command.record_id) in self.written:
            self.replacing.add(command.ask)

    def _note(self, ask: str, reply: Reply) -> None:
        self.answers[ask] = reply.answer
        self.members[self.asked[ask]] = reply.member
        self.reasons[self.asked[ask]] = reply.why

    def outcomes(self, record_id: str) -> set[Answer | None]:
        """The answers about a record, one for each place; None for one that has no answer."""
        asks = (ask for ask, asked_id in self.asked.items() if asked_id == record_id)
        return {self.answers.get(ask) for ask in asks}

    @property
    def is_complete(self) -> bool:
        """Whether each command has an answer."""
        return len(self.answers) == len(self.asked)


class WaitingRecords:
    """The waiting records of a group: reads them, and runs or cancels them.

    Example::

        async with WaitingRecords("billing", bootstrap_servers=bootstrap_servers) as waiting:
            async for record in waiting.records(WaitingFilter(error_class="TimeoutError")):
                print(record.id, record.story.failures)
            outcomes = await waiting.cancel(["4b1f2c3d4e5f6071"], by="anna")
    """

    def __init__(self, group: str, **options: Unpack[ProducerOptions]) -> None:
        self.group = group
        self._options: dict[str, Any] = dict(options)
        self._cluster = Cluster(config_from(ReadingConfig, options_of(ClientConfig, options)))
        self._producer: Producer | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()
        self._cluster.close()

    # Reading.

    async def ranges(self) -> list[TierRange]:
        """Return what waits now, by partition."""
        topics = sorted(
            name for name in await list_topics(self._cluster) if is_tier_topic(self.group, name)
        )
        unread = [log for name in topics for log in await partition_ranges(self._cluster, name)]
        scheduler = scheduler_group(self.group)
        partitions = [log.where for log in unread]
        committed = (await list_consumer_group_offsets(self._cluster, {scheduler: partitions}))[
            scheduler
        ]
        if isinstance(committed, GroupIdNotFound):
            committed = {}  # No worker has moved a record yet.
        if isinstance(committed, KafkaError):
            raise committed
        ranges = []
        for log in unread:
            offset = committed.get(log.where)
            if isinstance(offset, KafkaError):
                raise offset
            if offset is None or offset.offset is None:
                ranges.append(TierRange(log, frozenset()))
                continue
            done = done_above(offset.offset, offset.metadata)
            first = max(log.first, offset.offset)
            ranges.append(TierRange(log._replace(first=first), frozenset(done)))
        return ranges

    async def records(
        self,
        selection: WaitingFilter = EVERY_RECORD,
        *,
        ranges: Iterable[TierRange] | None = None,
    ) -> AsyncIterator[WaitingRecord]:
        """Yield the waiting records that match, partition by partition.

        A record that moves on meanwhile may be left out, or yielded twice.
        """
        for tier in await self.ranges() if ranges is None else ranges:
            where = tier.unread.where
            async for records in read_records(self._cluster, tier.unread, committed=True):
                for record in records:
                    if record.offset in tier.done:
                        continue
                    waiting = WaitingRecord(
                        Place(*where, record.offset), record.timestamp or 0,
                        record.key, record.value, record.headers,
                    )  # fmt: skip
                    if selection.matches(waiting):
                        yield waiting

    # Commands.

    async def run(self, ids: Collection[str], *, by: str = "") -> Mapping[str, Steered]:
        """Give these records to their handlers now; returns the outcome of each."""
        return await self.steer(Intent.RUN, ids, by=by)

    async def cancel(self, ids: Collection[str], *, by: str = "") -> Mapping[str, Steered]:
        """Make these records dead letters, without running them; returns the outcome of each."""
        return await self.steer(Intent.CANCEL, ids, by=by)

    async def steer(
        self,
        intent: Intent,
        ids: Collection[str],
        *,
        by: str = "",
        known: Sequence[WaitingRecord] = (),
    ) -> Mapping[str, Steered]:
        """Give a command for these records, and wait for the outcomes.

        ``known`` are places where they were just read, which spares the search for them.
        """
        if len(set(ids)) > IDS_MAX:
            raise InvalidConfig(
                f"{len(set(ids))} records; expected up to {IDS_MAX} in one call: use a job"
            )
        control = await self._control()
        by = by or self._cluster.principal or login()
        outcomes: dict[str, Steered] = {}
        left = set(ids)
        places = _places(known)
        for round_number in range(ROUNDS_MAX):
            if not left:
                break
            if round_number or not known:
                selection = WaitingFilter(ids=frozenset(left))
                places = _places([record async for record in self.records(selection)])
            missing = left - places.keys()
            if missing:
                outcomes |= await self._held(control, intent, missing, by)
                left -= missing
            asked = {record_id: places[record_id] for record_id in left}
            answered = await self._ask(control, intent, asked, by, ANSWER_SECONDS)
            for record_id in tuple(left):
                answers = answered.outcomes(record_id)
                if Answer.DONE in answers:
                    outcomes[record_id] = Steered(Outcome.DONE)
                elif Answer.REFUSED in answers:
                    why = answered.reasons.get(record_id, "")
                    outcomes[record_id] = Steered(Outcome.REFUSED, why=why)
                elif None in answers:
                    outcomes[record_id] = Steered(Outcome.UNANSWERED)
                else:
                    continue  # It moved on by itself.
                left.discard(record_id)
        return outcomes | {record_id: Steered(Outcome.TOO_LATE) for record_id in left}

    async def _control(self) -> ControlTopic:
        name = control_topic(self.group)
        described = (await describe_topics(self._cluster, [name]))[name]
        if isinstance(described, UnknownTopicOrPartition):
            raise InvalidConfig(
                f"group {self.group!r} has no topic {name!r}, so its waiting records cannot be "
                f"steered: declare its handlers with steering=True, and start or apply the worker"
            )
        if not isinstance(described, TopicDescription):
            raise described
        control = follow_control(self._cluster, self.group)
        await control.skip_to_end()
        return control

    async def _held(
        self, control: ControlTopic, intent: Intent, ids: Iterable[str], by: str
    ) -> dict[str, Steered]:
        """Ask which of these records a process holds; the others do not wait."""
        asked: dict[str, Sequence[Place | None]] = {record_id: [None] for record_id in ids}
        answered = await self._ask(control, intent, asked, by, HELD_SECONDS)
        return {
            record_id: Steered(Outcome.HELD, answered.members.get(record_id, ""))
            if Answer.HELD in answered.outcomes(record_id)
            else Steered(Outcome.TOO_LATE)
            for record_id in asked
        }

    async def _ask(
        self,
        control: ControlTopic,
        intent: Intent,
        places: Mapping[str, Sequence[Place | None]],
        by: str,
        seconds: float,
    ) -> _Round:
        """Write commands, and wait for their answers."""
        current = _Round()
        commands = [
            Command(
                record_id=record_id, intent=intent, place=place, ask=token_hex(8), by=by,
                asked_ms=time.time_ns() // 1_000_000,
            )
            for record_id, of_record in places.items()
            for place in of_record
        ]  # fmt: skip
        for command in commands:
            current.asked[command.ask] = command.record_id
            current.at[command.place or command.record_id] = command.ask
        await self._write(control, commands)
        until = time.monotonic() + seconds
        while not current.is_complete and time.monotonic() < until:
            await asyncio.sleep(LOOK_SECONDS)
            for record in await control.read():
                current.take(record)
        return current

    async def _write(self, control: ControlTopic, commands: Iterable[Command]) -> None:
        if self._producer is None:
            self._producer = Producer(**self._options, allow_auto_create_topics=False)
        futures = []
        for command in commands:
            key, value = encoded(command)
            futures.append(
                await self._producer.send(
                    control.where.topic, value, key=key, partition=control.where.partition
                )
            )
        for future in futures:
            await future


def _places(records: Iterable[WaitingRecord]) -> dict[str, list[Place | None]]:
    """Return where each record waits; more than one place if a process died between two writes."""
    places: dict[str, list[Place | None]] = defaultdict(list)
    for record in records:
        if record.id is not None:
            places[record.id].append(record.place)
    return dict(places)
