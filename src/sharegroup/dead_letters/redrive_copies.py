"""The copies of a redrive: which letters are sent back, to which topics, and with which headers.

A copy is the application's record with its story.  Origin and attempts are kept, the number of
failures starts at 0, and the number of redrives increases by one.  A letter that was redriven
``redrives_max`` times stays, so a record cannot circulate forever.  All copies of one letter have
the same id (`Letter.redrive_id`), by which a handler can detect duplicates.

Letters of workers and of Apache Kafka are claims: every producer of their topic can write them.
The same is true of the origin of a record that a producer wrote.  So a claimed target is only used
if it was confirmed by name (ADR 0036).

The group's own topic must exist.  A redrive does not create it, because no worker might read it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from sharegroup.client.admin.topics import describe_topics
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.record_reading import PartitionRange
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.produce.producer import Producer, SendFuture
from sharegroup.dead_letters.letter import Letter
from sharegroup.dead_letters.queue import CHUNK_LETTERS_MAX, Chunk
from sharegroup.dead_letters.redriven import ALREADY, GONE, LOOPING, NO_LETTER, RAW_BATCH, Redriven
from sharegroup.dead_letters.selection import EVERYTHING, Selection
from sharegroup.dead_letters.story_headers import redrives_header, story_headers
from sharegroup.dead_letters.topics import TOPIC_CHARACTERS_MAX, is_topic_name, own_topic
from sharegroup.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    KafkaError,
    MessageTooLarge,
    PolicyViolation,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from sharegroup.wire.batches.record_contents import encoded_names, record_content

RATE_STEPS_PER_SECOND = 10
"""A limited rate is kept in chunks of this fraction of a second."""


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

OF_ONE_BATCH = (InvalidRecord, InvalidTimestamp, MessageTooLarge)
"""Errors of one record for which a broker refuses its whole batch."""

TARGETS_KNOWN_MAX = 10_000
"""Cached topic descriptions; a dead-letter topic may name any number of groups."""


NOT_A_TOPIC = "no topic can have this name"
UNREADABLE = "a batch of letters cannot be decoded; its first offset is reported"

OTHER_TARGET = "this redrive sends to other targets only: those that it was started for"


class Copy(NamedTuple):
    """What is sent of one letter, and where it goes, or why it is not sent.

    It is made when the letter is read, while its parts are in the processor's first cache.  The
    letter is not kept: with its traceback it is several times as large, and has dozens of objects.
    """

    letter: tuple[int, int]
    """Partition and offset of the letter."""
    target: str
    """The topic to send to; empty if the letter names none."""
    partition: int | None
    """The partition to send to, unless the topic lacks it; None: by the key."""
    key: bytes | None
    content: bytes
    """Key, value and headers, encoded by `record_content`; empty if it is certainly not sent."""
    why_left: str | None
    """Why the letter stays where it is, unless it was redriven before; None: it does not."""
    is_claimed: bool
    """Whether a producer chose the target, and not the broker."""
    lacks_its_record: bool

    @property
    def offset(self) -> int:
        """The offset of the letter."""
        return self.letter[1]


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
    targets: frozenset[str] | None = None
    """The only topics to which letters may be sent, confirmed or not; None: to all."""


class RedriveCopies:
    """Chooses the letters of one redrive, makes their copies, and counts all of them in `done`.

    ``at_ms`` is the time of the redrive, with which ``--again`` makes the ids of its copies.
    """

    def __init__(self, cluster: Cluster, options: RedriveOptions, at_ms: int) -> None:
        self._cluster = cluster
        self._options = options
        self._began = time.monotonic()
        self.at_ms = at_ms
        self._partitions: dict[str, int | str] = {}
        """By target: its partition count, or the reason why nothing can be sent there."""
        self.chosen = 0
        """The number of letters that were chosen, which ``limit`` bounds."""
        self._paced = 0
        self.done = Redriven()

    @property
    def chunk_letters_max(self) -> int:
        """The number of letters to choose from at a time."""
        if self._options.rate is None:
            return CHUNK_LETTERS_MAX
        # A whole chunk is sent at once, so small chunks keep the rate even within a second.
        return max(1, min(CHUNK_LETTERS_MAX, int(self._options.rate / RATE_STEPS_PER_SECOND)))

    @property
    def is_at_limit(self) -> bool:
        """Whether ``limit`` allows no further letter."""
        return self.chosen == self._options.limit

    def seconds_to_wait(self) -> float:
        """Return how long the rate limit demands to wait before the next copies."""
        if self._options.rate is None:
            return 0.0
        return max(0.0, self._began + self._paced / self._options.rate - time.monotonic())

    def pace(self, count: int) -> None:
        """Count copies that are handed over now, for the rate limit."""
        self._paced += count

    async def choose(self, chunk: Chunk[Copy]) -> list[Copy]:
        """Choose the copies of a chunk to send, up to the limit.

        Counts the others.  Raises errors that do not concern only one target.
        """
        options, redriven = self._options, chunk.redriven
        await self._check({copy.target for copy in chunk.letters})
        chosen: list[Copy] = []
        room = sys.maxsize if options.limit is None else options.limit - self.chosen
        # Hot path: each tuple is unpacked, because its fields are slower to look up by name.
        for copy in chunk.letters:
            # The letters behind it are neither sent nor counted as left.
            if len(chosen) == room:
                break
            letter, target, partition, _, _, why, is_claimed, lacks_its_record = copy
            if why == NO_LETTER:
                self.done.left[NO_LETTER] += 1
            elif letter[1] in redriven and not options.again:
                self.done.left[ALREADY] += 1
            elif why is not None:
                self.done.left[why] += 1
            elif isinstance(count := self._partitions.get(target, NOT_A_TOPIC), str):
                self.refuse(letter, target, count)
            elif options.targets is not None and target not in options.targets:
                self.refuse(letter, target, OTHER_TARGET)
            elif is_claimed and target not in options.confirmed:
                self.refuse(letter, target, unconfirmed(target))
            else:
                # A topic that was made again may have fewer partitions than the record's.
                is_there = partition is None or partition < count
                chosen.append(copy if is_there else copy._replace(partition=None))
                self.done.without_headers += lacks_its_record
        self.chosen += len(chosen)
        return chosen

    def copy(self, letter: Letter) -> Copy:
        """Return the copy of a letter; it only looks at the letter and the options."""
        options = self._options
        target = self._target(letter)
        place = letter.partition, letter.offset
        if target is None:
            return Copy(place, "", None, letter.key, b"", NO_LETTER, False, False)
        why = self._why_left(letter)
        is_claimed = self._is_claimed(letter)
        content = b""
        is_allowed = not is_claimed or target in options.confirmed
        if why is None and is_allowed and not options.dry_run:
            redrive_id = letter.redrive_id
            if options.again:
                # A handler that skips known ids would skip the copy that the user wants once more.
                redrive_id += f"@{self.at_ms}"
            content = sent_back_content(letter, redrive_id)
        return Copy(
            place,
            target,
            None if options.to == "own" else _partition_of_origin(letter),
            letter.key,
            content,
            why,
            is_claimed,
            letter.lacks_its_record,
        )

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

    def _why_left(self, letter: Letter) -> str | None:
        if letter.redrives >= self._options.redrives_max:
            return LOOPING
        if letter.lacks_its_record and not letter.has_payload:
            return GONE
        if letter.is_raw_batch:
            return RAW_BATCH
        return None

    async def _check(self, names: set[str]) -> None:
        """Query new target topics; raises errors that do not concern only one target."""
        new = [name for name in names.difference(self._partitions) if is_topic_name(name)]
        if not new:
            return
        if len(self._partitions) + len(new) > TARGETS_KNOWN_MAX:
            # `choose` needs all targets of this chunk, so those that were known are asked for
            # again.
            self._partitions.clear()
            new = [name for name in names if is_topic_name(name)]
        answers = await describe_topics(self._cluster, new, operation="WRITE")
        for name, described in answers.items():
            if isinstance(described, TopicDescription):
                self._partitions[name] = described.partition_count
            elif isinstance(described, OF_ONE_TARGET):
                self._partitions[name] = self._why_not(name, described)
            else:
                raise described

    def _why_not(self, target: str, error: KafkaError) -> str:
        if not isinstance(error, UnknownTopicOrPartition):
            return error_text(error)
        if self._options.to == "own":
            return (
                f"topic {target!r} does not exist, so no worker of this group reads it: "
                "start the worker once, or send back to the original topic (--to original)"
            )
        return f"topic {target!r} does not exist any more"

    def refuse(self, letter: tuple[int, int], target: str, reason: str) -> None:
        """Count a letter, by partition and offset, that cannot be sent, and stays."""
        self.done.refused.add(target[:TOPIC_CHARACTERS_MAX], reason, *letter)

    def refuse_unreadable(self, batch: PartitionRange, _: KafkaError) -> None:
        """Count a batch of letters that cannot be decoded."""
        partition = batch.where
        self.done.refused.add(partition.topic, UNREADABLE, partition.partition, batch.first)


def _partition_of_origin(letter: Letter) -> int | None:
    """The partition of the record; None for one that was sent with a delay and had none."""
    origin = letter.story.origin
    assert origin is not None, "a letter without an origin is not selected"
    return origin.partition if origin.partition >= 0 else None


def hand_over(producer: Producer, copy: Copy) -> Coroutine[Any, Any, SendFuture]:
    """Give a copy to the producer; waits only if its buffer is full."""
    return producer.send_content(copy.target, copy.content, key=copy.key, partition=copy.partition)


async def outcome_of(future: SendFuture) -> BaseException | None:
    """Wait until a copy is durable or refused; returns the error, or None."""
    if not future.done():
        with suppress(KafkaError):  # Returned below.
            await future
    return future.exception()


def error_text(error: KafkaError) -> str:
    """Return the reason for which a letter is refused."""
    return f"{type(error).__name__}: {error}"


def unconfirmed(target: str) -> str:
    """Return the reason for which letters that only claim a target are not sent to it."""
    return (
        f"the dead letters claim this target: each producer of their topic could write that; if "
        f"they may go to {target!r}, confirm it by name (--confirm {target})"
    )


def sent_back_content(letter: Letter, redrive_id: str) -> bytes:
    """Return the content of a copy.

    Its headers are the application's, and the story with no failures and one more redrive.
    """
    if letter.tells_story:
        # Hot path: headers that a worker wrote are copied without parsing.  Their readers validate
        # them anyway (`story_headers`).
        _, count = redrives_header(letter.redrives + 1)
        return letter.content_of_copy(count, redrive_id.encode())
    story = letter.story
    assert story.origin is not None, "a letter without an origin is not selected"
    redriven_story = replace(
        story,
        failures=0,
        due_ms=None,
        unrouted=0,
        suspicions=0,
        id=None,
        cancelled_by=None,
        age_from_ms=None,
        redrives=story.redrives + 1,
        redrive_id=redrive_id,
    )
    headers = [*letter.headers, *story_headers(redriven_story, story.origin)]
    names = encoded_names([name for name, _ in headers])
    return record_content(names, [letter.key, letter.value, *(content for _, content in headers)])
