"""Redrive: sends dead letters back to the group that they belong to, and to no other group.

    letters --some--> copies to <group>.retry --durable--> ledger

A copy is the application's record with its story.  Origin and attempts are kept, the number of
failures starts at 0, and the number of redrives increases by one.  A letter that was redriven
``redrives_max`` times stays, so a record cannot circulate forever.

Up to a few thousand copies are in flight while the next ones are prepared.  They are recorded in
the ledger once all of them are durable.  So an interruption loses nothing, and at most twice as
many copies are sent again.  All copies of one letter have the same id (`Letter.redrive_id`), by
which a handler can detect duplicates.

Letters of workers and of Apache Kafka are claims: every producer of their topic can write them.
The same is true of the origin of a record that a producer wrote.  So a claimed target is only used
if it was confirmed by name (ADR 0036).

The group's own topic must exist.  A redrive does not create it, because no worker might read it.
A letter that cannot be sent stays and is reported at the end (`Refusals`); the others are sent.
That happens if the topic is missing or the broker refuses the copy.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from sharegroup.client.admin.topics import describe_topics
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.record_reading import PartitionRange
from sharegroup.client.produce.producer import Producer, SendFuture
from sharegroup.client.records import Header
from sharegroup.dead_letters.letter import Letter
from sharegroup.dead_letters.queue import CHUNK_LETTERS_MAX, Chunk, DeadLetterQueue
from sharegroup.dead_letters.selection import EVERYTHING, Selection
from sharegroup.dead_letters.story import Story
from sharegroup.dead_letters.story_headers import (
    ATTEMPTS,
    ORIGIN,
    REDRIVE_ID,
    TRACE,
    redrive_headers,
    story_headers,
)
from sharegroup.dead_letters.topics import TOPIC_CHARACTERS_MAX, is_topic_name, own_topic
from sharegroup.errors import (
    InvalidConfig,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    KafkaError,
    MessageTooLarge,
    PolicyViolation,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)

UNDER_WAY_MIN = 4_000
"""Copies per ledger entry; with fewer, the ledger would be the bottleneck."""
RATE_STEPS_PER_SECOND = 10
"""A limited rate is kept in chunks of this fraction of a second."""

NO_PARTITION = -1
HANDED_ON = (*ORIGIN, ATTEMPTS, TRACE)
"""Headers of a worker's story that a copy keeps."""

ALREADY = "redriven-before"
LOOPING = "redrives-exhausted"
GONE = "record-gone"
NO_LETTER = "no-dead-letter"
RAW_BATCH = "unreadable-batch"

WHY_LEFT: Mapping[str, str] = {
    ALREADY: "sent back before (--again sends them once more)",
    LOOPING: "sent back as often as --max-redrives allows",
    GONE: "without a copy of their record, which no longer exists in its topic",
    NO_LETTER: "not dead letters: they contain no group and no record",
    RAW_BATCH: "of batches that cannot be read: they contain bytes of the log and no record",
}
"""Reasons for which a matching letter is not sent, with their texts."""


OF_ONE_TARGET = (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    MessageTooLarge,
    PolicyViolation,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
"""Errors that concern one record or its topic; copies for other topics can still be sent."""

TARGETS_KNOWN_MAX = 10_000
"""Cached topic descriptions; a dead-letter topic may name any number of groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """The letters that a redrive sends back, their topics, and the rate."""

    selection: Selection = EVERYTHING
    to: Literal["own", "original"] = "own"
    redrives_max: int = 3
    limit: int | None = None
    rate: float | None = None
    """Records per second; None for no limit."""
    again: bool = False
    """Whether letters that were redriven before are sent again."""
    dry_run: bool = False
    confirmed: frozenset[str] = frozenset()
    """The topics to which letters may be sent that only claim to belong there."""


# Refusals: the letters that a redrive could not send back, by target topic and reason.
#
# Many groups may share a dead-letter topic, and every producer with access to it can name any
# group. So a letter that cannot be sent does not end a redrive. It stays and is reported at the
# end.


TARGETS_MAX = 100
"""Targets counted separately; letters for further targets are counted together."""

RUNS_MAX = 100
"""Runs of consecutive letters reported for one target; further letters are only counted."""

OTHER_TARGETS = "(other topics)"
SEVERAL_REASONS = (
    "several reasons; to see each reason, select these dead letters with --group or --at"
)


@dataclass(slots=True)
class Refused:
    """Letters for one target that were not sent for one reason."""

    target: str
    reason: str
    letters: int = 0
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """Partition, first offset and end offset of consecutive letters."""

    def add(self, partition: int, offset: int) -> None:
        """Count a letter; must be called in the order of offsets."""
        self.letters += 1
        if self.runs and self.runs[-1][0] == partition and self.runs[-1][2] == offset:
            self.runs[-1] = (partition, self.runs[-1][1], offset + 1)
        elif len(self.runs) < RUNS_MAX:
            self.runs.append((partition, offset, offset + 1))

    def places(self) -> Iterator[str]:
        """The letters as ``partition:offset`` or ``partition:first-last``."""
        for partition, first, end in self.runs:
            yield f"{partition}:{first}" + (f"-{end - 1}" if end - first > 1 else "")

    @property
    def all_told(self) -> bool:
        """Whether `places` names every letter."""
        return sum(end - first for _, first, end in self.runs) == self.letters


class Refusals:
    """All letters that one redrive could not send."""

    __slots__ = ("_by_target",)

    def __init__(self) -> None:
        self._by_target: dict[tuple[str, str], Refused] = {}

    def add(self, target: str, reason: str, partition: int, offset: int) -> None:
        """Count a letter that stays where it is."""
        key = (target, reason)
        if key not in self._by_target and len(self._by_target) >= TARGETS_MAX:
            key = (OTHER_TARGETS, SEVERAL_REASONS)
        refused = self._by_target.get(key)
        if refused is None:
            refused = self._by_target[key] = Refused(*key)
        refused.add(partition, offset)

    def __iter__(self) -> Iterator[Refused]:
        return iter(self._by_target.values())

    def __bool__(self) -> bool:
        return bool(self._by_target)

    @property
    def letters(self) -> int:
        """The number of letters that were refused."""
        return sum(refused.letters for refused in self)


@dataclass(slots=True)
class Redriven:
    """The result of a redrive."""

    sent: Counter[str] = field(default_factory=Counter)
    """The number of records sent to each topic."""
    left: Counter[str] = field(default_factory=Counter)
    """The number of matching letters that were not sent, by reason."""
    without_headers: int = 0
    """Sent records whose own headers are lost, from letters that a broker wrote."""
    refused: Refusals = field(default_factory=Refusals)
    """Matching letters that could not be sent."""
    interrupted: bool = False


OF_ONE_BATCH = (InvalidRecord, InvalidTimestamp, MessageTooLarge)
"""Errors of one record for which a broker refuses its whole batch."""

NOT_A_TOPIC = "no topic can have this name"
UNREADABLE = "a batch of letters cannot be decoded; its first offset is reported"

Choice = tuple[Letter, str]
"""A letter to send back, and its target topic."""


@dataclass(slots=True)
class _UnderWay:
    """Copies in flight: letters of one partition whose copies are not yet known to be durable."""

    partition: int
    letters: list[Letter] = field(default_factory=list)
    futures: list[SendFuture] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)


class Redrive:
    """One run of a redrive, from a dead-letter queue to the topics of its groups."""

    def __init__(self, queue: DeadLetterQueue, producer: Producer, options: RedriveOptions) -> None:
        if not producer.is_confirmed:
            raise InvalidConfig(
                "a redrive marks letters as sent back when a broker confirms their records, which "
                'acks=0 never does; use acks="all" (the default) or 1'
            )
        self._queue = queue
        self._producer = producer
        self._options = options
        self._began = time.monotonic()
        # One time for the run, because `--again` makes the ids of its copies with it.
        self._at_ms = time.time_ns() // 1_000_000
        self._partitions: dict[str, int | str] = {}
        """By target: its partition count, or the reason why nothing can be sent there."""
        self._chosen = 0
        self._handed_over = 0
        self._before = _UnderWay(NO_PARTITION)
        self._now = _UnderWay(NO_PARTITION)
        self.done = Redriven()

    async def run(self, stop: asyncio.Event) -> Redriven:
        """Send back the selected letters until all are sent or ``stop`` is set.

        Raises KafkaError.  After an error, `done` has what was sent and recorded before it.
        """
        options = self._options
        if not options.dry_run:
            await self._open_ledger()
        size = CHUNK_LETTERS_MAX
        if options.rate is not None:
            # A whole chunk is sent at once, so small chunks keep the rate even within a second.
            size = max(1, min(size, int(options.rate / RATE_STEPS_PER_SECOND)))
        unit = UNDER_WAY_MIN if options.rate is None else size
        try:
            chunks = self._queue.chunks(
                options.selection, size=size, complete=True, unreadable=self._unreadable
            )
            async for chunk in chunks:
                targets = [self._target(letter) for letter in chunk.letters]
                await self._check(targets)
                chosen = self._chosen_of(chunk, targets)
                await self._keep_rate(stop)
                if stop.is_set():
                    self.done.interrupted = True
                    break
                now = self._now
                if now.partition != chunk.partition or len(now.letters) >= unit:
                    # The older copies are settled while the newer ones are on their way, so neither
                    # the producer nor the ledger waits for the other.
                    last, self._before = self._before, now
                    self._now = _UnderWay(chunk.partition)
                    await self._settle(last)
                await self._send(chosen)
                if self._chosen == options.limit:
                    break
        finally:
            # Also after an error, so that durable copies are recorded in the ledger.
            try:
                await self._settle(self._before)
            finally:
                await self._settle(self._now)
        return self.done

    async def _open_ledger(self) -> None:
        queue = self._queue
        await queue.ledger.create(queue.cluster)
        firsts = {log_range.where.partition: log_range.first for log_range in queue.ranges}
        await queue.ledger.prune(queue.cluster, queue.noted, firsts)

    def _unreadable(self, batch: PartitionRange, _: KafkaError) -> None:
        partition = batch.where
        self.done.refused.add(partition.topic, UNREADABLE, partition.partition, batch.first)

    def _chosen_of(self, chunk: Chunk, targets: Sequence[str | None]) -> list[Choice]:
        """Choose the letters of a chunk to send back, up to the limit, with their targets."""
        chosen: list[Choice] = []
        room = sys.maxsize if self._options.limit is None else self._options.limit - self._chosen
        for letter, target in zip(chunk.letters, targets, strict=True):
            # The letters behind it are neither sent nor counted as left.
            if len(chosen) == room:
                break
            if target is None:
                self.done.left[NO_LETTER] += 1
            elif why := self._why_left(letter, again=letter.offset in chunk.redriven):
                self.done.left[why] += 1
            elif isinstance(reason := self._partitions.get(target, NOT_A_TOPIC), str):
                self._refuse(chunk.partition, letter.offset, target, reason)
            elif self._is_claimed(letter) and target not in self._options.confirmed:
                self._refuse(chunk.partition, letter.offset, target, _unconfirmed(target))
            else:
                chosen.append((letter, target))
        self._chosen += len(chosen)
        return chosen

    def _target(self, letter: Letter) -> str | None:
        """The target topic; None if the letter names no group or no record."""
        if self._options.to == "own":
            group = letter.group
            return own_topic(group) if group and letter.has_origin else None
        origin = letter.story.origin
        return None if origin is None or not letter.group else origin.topic

    def _is_claimed(self, letter: Letter) -> bool:
        """Whether a producer chose the target, and not the broker."""
        own = self._options.to == "own"
        return not letter.is_vouched if own else letter.is_origin_claimed

    def _why_left(self, letter: Letter, *, again: bool) -> str | None:
        if again and not self._options.again:
            return ALREADY
        if letter.redrives >= self._options.redrives_max:
            return LOOPING
        if letter.lacks_its_record and not letter.has_payload:
            return GONE
        if letter.is_raw_batch:
            return RAW_BATCH
        return None

    async def _keep_rate(self, stop: asyncio.Event) -> None:
        """Wait until the rate limit allows the next chunk."""
        if self._options.rate is None:
            return
        due = self._began + self._handed_over / self._options.rate
        try:
            async with asyncio.timeout(max(0.0, due - time.monotonic())):
                await stop.wait()
        except TimeoutError:
            pass

    async def _send(self, chosen: Sequence[Choice]) -> None:
        """Give copies of letters to the producer."""
        self._handed_over += len(chosen)
        self.done.without_headers += sum(letter.lacks_its_record for letter, _ in chosen)
        if self._options.dry_run:
            self.done.sent.update(target for _, target in chosen)
            return
        now = self._now
        for letter, target in chosen:
            try:
                future = await self._hand_over(letter, target)
            except OF_ONE_TARGET as error:
                self._refuse(letter.partition, letter.offset, target, _error_text(error))
                continue
            now.letters.append(letter)
            now.futures.append(future)
            now.targets.append(target)
        await asyncio.sleep(0)  # Lets the producer send full batches.

    async def _hand_over(self, letter: Letter, target: str) -> SendFuture:
        """Give a letter's copy to the producer; waits only if its buffer is full."""
        producer, to = self._producer, self._partition(letter, target)
        key, value, copy = letter.key, letter.value, self._copy_headers(letter)
        future = producer.send_now(target, value, key=key, headers=copy, partition=to)
        if future is None:
            future = await producer.send(target, value, key=key, headers=copy, partition=to)
        return future

    async def _settle(self, under_way: _UnderWay) -> None:
        """Wait until copies are durable and record them in the ledger.

        Raises the first error that does not concern only one record or target.
        """
        failed: BaseException | None = None
        written: list[int] = []
        for letter, future, target in zip(
            under_way.letters, under_way.futures, under_way.targets, strict=True
        ):
            error = await _outcome(future)
            if isinstance(error, OF_ONE_BATCH):
                error = await self._send_alone(letter, target)
            if error is None:
                written.append(letter.offset)
                self.done.sent[target] += 1
            elif isinstance(error, OF_ONE_TARGET):
                self._refuse(under_way.partition, letter.offset, target, _error_text(error))
            else:
                failed = failed or error
        if written:
            # Before an error is raised: these copies are durable, and a later run must skip their
            # letters.
            facts = {"at_ms": self._at_ms, "to": sorted(set(under_way.targets))}
            await self._queue.ledger.note(self._producer, under_way.partition, written, facts=facts)
        if failed is not None:
            raise failed

    async def _send_alone(self, letter: Letter, target: str) -> BaseException | None:
        """Send a letter again in a batch of its own; returns the error, or None.

        A broker refuses a batch as a whole, so other letters of the batch fail with a bad one.
        """
        try:
            await self._producer.flush()
            future = await self._hand_over(letter, target)
        except KafkaError as error:
            # Returned, as the error of a copy: the copies that are durable are still to be noted.
            return error
        return await _outcome(future)

    def _refuse(self, partition: int, offset: int, target: str, reason: str) -> None:
        self.done.refused.add(target[:TOPIC_CHARACTERS_MAX], reason, partition, offset)

    async def _check(self, targets: Iterable[str | None]) -> None:
        """Query new target topics; raises errors that do not concern only one target."""
        names = {target for target in targets if target is not None}
        new = [name for name in names.difference(self._partitions) if is_topic_name(name)]
        if not new:
            return
        if len(self._partitions) + len(new) > TARGETS_KNOWN_MAX:
            # `_chosen_of` needs all targets of this chunk, so those that were known are asked for
            # again.
            self._partitions.clear()
            new = [name for name in names if is_topic_name(name)]
        answers = await describe_topics(self._queue.cluster, new, operation="WRITE")
        for name, described in answers.items():
            if isinstance(described, TopicDescription):
                self._partitions[name] = described.partition_count
            elif isinstance(described, OF_ONE_TARGET):
                self._partitions[name] = self._why_not(name, described)
            else:
                raise described

    def _why_not(self, target: str, error: KafkaError) -> str:
        if not isinstance(error, UnknownTopicOrPartition):
            return _error_text(error)
        if self._options.to == "own":
            return (
                f"topic {target!r} does not exist, so no worker of this group reads it: "
                "start the worker once, or send back to the original topic (--to original)"
            )
        return f"topic {target!r} does not exist any more"

    def _partition(self, letter: Letter, target: str) -> int | None:
        """The record's original partition if it goes to its original topic; None otherwise."""
        if self._options.to == "own":
            return None
        origin = letter.story.origin
        assert origin is not None, "a letter without an origin is not selected"
        count = self._partitions[target]
        assert isinstance(count, int), "no letter is sent to a refused target"
        # A record that was sent with a delay has no partition (`NOWHERE`), and a topic that was
        # made again may have fewer.
        return origin.partition if 0 <= origin.partition < count else None

    def _copy_headers(self, letter: Letter) -> list[Header]:
        redrive_id = letter.redrive_id
        if self._options.again:
            # A handler that skips known ids would skip the copy that the user wants once more.
            redrive_id += f"@{self._at_ms}"
        return sent_back_headers(letter, redrive_id)


def _error_text(error: KafkaError) -> str:
    return f"{type(error).__name__}: {error}"


def _unconfirmed(target: str) -> str:
    return (
        f"the dead letters claim this target: each producer of their topic could write that; if "
        f"they may go to {target!r}, confirm it by name (--confirm {target})"
    )


def sent_back_headers(letter: Letter, redrive_id: str) -> list[Header]:
    """Headers of a copy: the application's, and the story with no failures and one more redrive."""
    told = letter.told
    if not letter.tells_story:
        story = letter.story
        assert story.origin is not None, "a letter without an origin is not selected"
        redriven_story = replace(
            story,
            failures=0,
            due_ms=None,
            unrouted=0,
            suspicions=0,
            redrives=story.redrives + 1,
            redrive_id=redrive_id,
        )
        return [*letter.headers, *story_headers(redriven_story, story.origin)]
    # Hot path: headers that a worker wrote are copied without parsing.  Their readers validate
    # them anyway (`story_headers`).
    return [
        *letter.headers,
        *[(name, told[name]) for name in HANDED_ON if name in told],
        *redrive_headers(Story(redrives=letter.redrives + 1)),
        (REDRIVE_ID, redrive_id.encode()),
    ]


async def _outcome(future: SendFuture) -> BaseException | None:
    """Wait until a copy is durable or refused; returns the error, or None."""
    if not future.done():
        with suppress(KafkaError):  # Returned below.
            await future
    return future.exception()
