"""Sending dead letters back: to the group that gave them up, and to nobody else.

    letters --some--> copies to <group>.retry --durable--> ledger

A copy is the application's record with its story: where it came from and what was tried is kept,
the count of failures begins at 0, and the count of redrives goes up.  A letter that was sent back
so often already stays where it is (``redrives_max``), so that nothing runs in a circle.

Some thousand copies are under way while the next are made; they are noted in the ledger when all
of them are durable.  So nothing is lost whenever it ends, and what may be sent twice is what was
under way: twice as many.  All copies of one death carry one id (`Letter.redrive_id`), by which a
handler can tell.

The group's own topic must exist.  It is not made here: a topic that no worker reads would
swallow what is sent to it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from sharegroup.client.admin_topics import describe_topics
from sharegroup.client.admin_types import TopicDescription
from sharegroup.client.producer import Delivery, Producer
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.worker.dead_letters.letter import Letter
from sharegroup.worker.dead_letters.queue import CHUNK_LETTERS_MAX, Chunk, DeadLetterQueue
from sharegroup.worker.dead_letters.selection import EVERYTHING, Selection
from sharegroup.worker.declared.names import own_topic
from sharegroup.worker.ports import Header
from sharegroup.worker.records.story_headers import (
    ATTEMPTS,
    ORIGIN,
    REDRIVE_ID,
    REDRIVES,
    TRACE,
    story_headers,
)

UNDER_WAY_MIN = 4_000
"""Copies that are noted together: an entry of the ledger is not to be the bottleneck."""
RATE_STEPS_PER_SECOND = 10
"""A limited rate is kept in chunks of this fraction of a second."""

NO_PARTITION = -1
HANDED_ON = (*ORIGIN, ATTEMPTS, TRACE)
"""Of a worker's story what a copy has, too."""

ALREADY = "redriven-before"
LOOPING = "redrives-exhausted"
GONE = "record-gone"
NO_LETTER = "no-dead-letter"

WHY_LEFT: Mapping[str, str] = {
    ALREADY: "sent back before (--again sends them once more)",
    LOOPING: "sent back as often as --max-redrives allows",
    GONE: "without a copy of their record, which is gone from its topic",
    NO_LETTER: "not dead letters: they name no group and no record",
}
"""What a letter that matches is left for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """What is sent back, where to, and how fast."""

    selection: Selection = EVERYTHING
    to: Literal["own", "original"] = "own"
    redrives_max: int = 3
    limit: int | None = None
    rate: float | None = None
    """Records in a second."""
    again: bool = False
    """Also what was sent back before."""
    dry_run: bool = False


@dataclass(slots=True)
class Redriven:
    """What was done."""

    sent: Counter[str] = field(default_factory=Counter)
    """Records by the topic that they were sent to."""
    left: Counter[str] = field(default_factory=Counter)
    """Letters that match and were left, by why."""
    without_headers: int = 0
    """Of those sent: a broker's copies, whose own headers nobody has any more."""
    interrupted: bool = False


Choice = tuple[Letter, str]
"""What is sent back, and to which topic."""


@dataclass(slots=True)
class _UnderWay:
    """Copies of letters of one partition that are not known to be durable."""

    partition: int
    offsets: list[int] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)


class Redrive:
    """One run; see the module's text."""

    def __init__(self, queue: DeadLetterQueue, producer: Producer, options: RedriveOptions) -> None:
        self._queue = queue
        self._producer = producer
        self._options = options
        self._began = time.monotonic()
        self._at_ms = time.time_ns() // 1_000_000
        self._partitions: dict[str, int] = {}
        self._chosen = 0
        self._handed_over = 0
        self._before = _UnderWay(NO_PARTITION)
        self._now = _UnderWay(NO_PARTITION)
        self.done = Redriven()

    async def run(self, stop: asyncio.Event) -> Redriven:
        """Send back what is selected, until all is or ``stop`` is set; raises KafkaError.

        After an error `done` says what was sent and noted before.
        """
        options = self._options
        if not options.dry_run:
            await self._open_ledger()
        size = CHUNK_LETTERS_MAX
        if options.rate is not None:
            size = max(1, min(size, int(options.rate / RATE_STEPS_PER_SECOND)))
        unit = UNDER_WAY_MIN if options.rate is None else size
        try:
            async for chunk in self._queue.chunks(options.selection, size=size, complete=True):
                some = self._chosen_of(chunk)
                await self._check({target for _, target in some})
                await self._keep_rate(stop)
                if stop.is_set():
                    self.done.interrupted = True
                    break
                now = self._now
                if now.partition != chunk.partition or len(now.offsets) >= unit:
                    last, self._before = self._before, now
                    self._now = _UnderWay(chunk.partition)
                    await self._settle(last)
                await self._send(some)
                if self._chosen == options.limit:
                    break
        finally:
            # Also after an error: what is durable is to be noted.
            try:
                await self._settle(self._before)
            finally:
                await self._settle(self._now)
        return self.done

    async def _open_ledger(self) -> None:
        queue = self._queue
        await queue.ledger.create(queue.cluster)
        firsts = {span.where.partition: span.first for span in queue.spans}
        await queue.ledger.prune(queue.cluster, queue.noted, firsts)

    def _chosen_of(self, chunk: Chunk) -> list[Choice]:
        """What of a chunk is sent back, up to the limit, and where to."""
        chosen: list[Choice] = []
        room = sys.maxsize if self._options.limit is None else self._options.limit - self._chosen
        for letter in chunk.letters:
            if len(chosen) == room:
                break
            target = self._target(letter)
            if target is None:
                self.done.left[NO_LETTER] += 1
            elif why := self._why_left(letter, again=letter.offset in chunk.redriven):
                self.done.left[why] += 1
            else:
                chosen.append((letter, target))
        self._chosen += len(chosen)
        return chosen

    def _target(self, letter: Letter) -> str | None:
        """Where it goes; None when it names no group, or no record."""
        if self._options.to == "own":
            group = letter.group
            return own_topic(group) if group and letter.has_origin else None
        origin = letter.story.origin
        return None if origin is None or not letter.group else origin.topic

    def _why_left(self, letter: Letter, *, again: bool) -> str | None:
        if again and not self._options.again:
            return ALREADY
        if letter.redrives >= self._options.redrives_max:
            return LOOPING
        if letter.lacks_its_record and not letter.has_payload:
            return GONE
        return None

    async def _keep_rate(self, stop: asyncio.Event) -> None:
        """Wait until what was sent before is no more than the rate allows."""
        if self._options.rate is None:
            return
        due = self._began + self._handed_over / self._options.rate
        try:
            async with asyncio.timeout(max(0.0, due - time.monotonic())):
                await stop.wait()
        except TimeoutError:
            pass

    async def _send(self, chosen: Sequence[Choice]) -> None:
        """Hand copies to the producer."""
        self._handed_over += len(chosen)
        self.done.without_headers += sum(letter.lacks_its_record for letter, _ in chosen)
        if self._options.dry_run:
            self.done.sent.update(target for _, target in chosen)
            return
        now, producer = self._now, self._producer
        for letter, target in chosen:
            key, value, copy = letter.key, letter.value, self._copy_headers(letter)
            to = self._partition(letter, target)
            delivery = producer.send_now(target, value, key=key, headers=copy, partition=to)
            if delivery is None:
                delivery = await producer.send(target, value, key=key, headers=copy, partition=to)
            now.offsets.append(letter.offset)
            now.deliveries.append(delivery)
            now.targets.append(target)
        await asyncio.sleep(0)  # What filled a batch can leave.

    async def _settle(self, under_way: _UnderWay) -> None:
        """Wait until copies are durable and note them; raise the first that failed."""
        failed: BaseException | None = None
        written: list[int] = []
        for offset, delivery, target in zip(
            under_way.offsets, under_way.deliveries, under_way.targets, strict=True
        ):
            if not delivery.done():
                with suppress(KafkaError):  # It is looked at below, as all are.
                    await delivery
            error = delivery.exception()
            if error is None:
                written.append(offset)
                self.done.sent[target] += 1
            else:
                failed = failed or error
        if written:
            facts = {"at_ms": self._at_ms, "to": sorted(set(under_way.targets))}
            await self._queue.ledger.note(self._producer, under_way.partition, written, facts=facts)
        if failed is not None:
            raise failed

    async def _check(self, targets: Iterable[str]) -> None:
        """That every target exists, asked once for each."""
        for target in set(targets).difference(self._partitions):
            described = (await describe_topics(self._queue.cluster, [target]))[target]
            if not isinstance(described, TopicDescription):
                if isinstance(described, UnknownTopicOrPartition) and self._options.to == "own":
                    raise UnknownTopicOrPartition(
                        f"topic {target!r} does not exist, so no worker of this group reads it: "
                        "start the worker once, or send back to the original topic "
                        "(--to original)"
                    )
                raise described
            self._partitions[target] = described.partition_count

    def _partition(self, letter: Letter, target: str) -> int | None:
        """In its topic the record goes to its partition, whatever its producer chose it by."""
        if self._options.to == "own":
            return None
        origin = letter.story.origin
        assert origin is not None, "what has no origin is not chosen"
        return origin.partition if 0 <= origin.partition < self._partitions[target] else None

    def _copy_headers(self, letter: Letter) -> list[Header]:
        redrive_id = letter.redrive_id
        if self._options.again:
            redrive_id += f"@{self._at_ms}"
        return sent_back_headers(letter, redrive_id)


def sent_back_headers(letter: Letter, redrive_id: str) -> list[Header]:
    """The application's headers, and a story that goes on: the same origin, no failures."""
    told = letter.told
    if not letter.tells_story:
        story = letter.story
        assert story.origin is not None, "what has no origin is not chosen"
        again = replace(
            story, failures=0, due_ms=None, redrives=story.redrives + 1, redrive_id=redrive_id
        )
        return [*letter.headers, *story_headers(again, story.origin)]
    # Hot: what a worker wrote is handed on as it is; who reads it believes nothing anyway.
    return [
        *letter.headers,
        *[(name, told[name]) for name in HANDED_ON if name in told],
        (REDRIVES, b"%d" % (letter.redrives + 1)),
        (REDRIVE_ID, redrive_id.encode()),
    ]
