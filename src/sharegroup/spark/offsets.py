"""The offset of a stream, as Spark logs it: the acquired and the carried records of a batch.

A share group has no position to read from, because the broker decides which records it delivers.
So the "offset" of a batch is the list of the records acquired for it.  With Spark's log of offsets,
a batch that is replayed reads the same records again.  The text must stay small, because it is
logged, occurs three times in each progress report, and is compared as text:

    {"v": 1, "seq": 7, "group": "billing", "subscribe": ["orders"],
     "query": "8b1e...", "load": "5f0c...", "decides": true,
     "acquired": {"6uO1jO3BTk2YwDkLwxhW8w": {"topic": "orders",
                                             "runs": {"0": [100, 50, 7, 3]},
                                             "counts": {"0": [1, 1, 2, 1]}}},
     "carry": {"accept": {...}, "reject": {...}}}

Runs are flat pairs of gap and length, so [100, 50, 7, 3] is [100, 150) and [157, 160).  Counts are
pairs of delivery count and number of runs, omitted if every count is 1.  Topics are identified by
their id, because a topic that is deleted and recreated has another one; the name is for people and
for the rows.  ``seq`` numbers the batches with records.  ``query`` is the query's name and member
id while its checkpoint exists.  ``load`` identifies the `load()` of the batch, and ``decides`` is
there if an earlier batch had decisions (`decision_files`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple
from uuid import UUID

from sharegroup.client.share.session.acquired_records import AcquiredRecords, acquired_offsets
from sharegroup.ids import TopicId, TopicIdPartition, TopicName, topic_id_text
from sharegroup.spark.carry import AcquiredByPartition, Carry, Sets

VERSION = 1
NUMBER_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1
RUN_OFFSETS_MAX = 2**31 - 1
"""Maximum number of offsets in a run; a share partition holds far fewer."""

DELIVERY_COUNT_MAX = 2**15 - 1
_NAME = re.compile(r"[A-Za-z0-9_-]{0,64}")
"""Valid ids of a query or a `load()`, which are parts of file names and member ids."""

Json = dict[str, Any]


class CheckpointError(ValueError):
    """The checkpoint belongs to another query, or has a version that is not supported."""


class Subscription(NamedTuple):
    """The share group and the topics that a checkpoint belongs to."""

    group: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The offset of a micro-batch: its acquired records and the carry."""

    subscription: Subscription
    seq: int = 0
    query: str = ""
    load: str = ""
    acquired: AcquiredByPartition = field(default_factory=dict)
    carry: Carry = field(default_factory=Carry)
    names: Mapping[TopicId, TopicName] = field(default_factory=dict)
    """Names of all topics in the offset, by id."""
    decides: bool = False
    """Whether an earlier batch had decisions, so the folder of this batch's decisions exists."""

    def to_json(self) -> Json:
        """Return the JSON that Spark logs; equal offsets give equal texts."""
        content: Json = {
            "v": VERSION,
            "seq": self.seq,
            "group": self.subscription.group,
            # Sorted, because the order of the names in the option means nothing.
            "subscribe": sorted(self.subscription.topics),
        }
        # The offset before the first batch is the same for all readers, because none has begun.
        if self.seq:
            content |= {"query": self.query, "load": self.load}
        if self.decides:
            content["decides"] = True
        if self.acquired:
            content["acquired"] = self._by_topic(self.acquired)
        carry = {"accept": self.carry.accept, "reject": self.carry.reject}
        if self.carry.count:
            content["carry"] = {
                kind: self._by_topic(_runs_of(sets)) for kind, sets in carry.items() if sets
            }
        return content

    def _by_topic(self, acquired: AcquiredByPartition) -> Json:
        topics: Json = {}
        for key in sorted(acquired):
            runs = acquired[key]
            topic = topics.setdefault(
                topic_id_text(key.topic_id), {"topic": self.names[key.topic_id], "runs": {}}
            )
            topic["runs"][str(key.partition)] = deltas_of(
                (run.first_offset, run.end_offset) for run in runs
            )
            counts = _counts(runs)
            # `_parse_topics` takes one pair with the count 1 for runs without counts.
            if counts[::2] != [1]:
                topic.setdefault("counts", {})[str(key.partition)] = counts
        return topics


def parse(document: Mapping[str, Any], expected: Subscription) -> StreamOffset:
    """Parse an offset that Spark logged. CheckpointError if it is invalid or of another query.

    It is validated because anyone with write access to the checkpoint's storage can change it.
    """
    try:
        return _parsed(document, expected)
    except CheckpointError:
        raise
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint's offset is not valid for the format kafka-share: {error!r:.200}; "
            "use a new checkpointLocation (the group keeps its own position, nothing is lost)"
        ) from error


def _parsed(document: Mapping[str, Any], expected: Subscription) -> StreamOffset:
    if document.get("v") != VERSION:
        raise CheckpointError(
            f"the checkpoint's offset has version {document.get('v')!r}; expected {VERSION}, "
            f"written by the format kafka-share: {str(document)[:200]}"
        )
    _check_subscription(document, expected)
    names: dict[TopicId, TopicName] = {}
    acquired = _parse_topics(document.get("acquired", {}), names)
    carry = document.get("carry", {})
    accept, reject = (
        {
            key: acquired_offsets(runs)
            for key, runs in _parse_topics(carry.get(kind, {}), names).items()
        }
        for kind in ("accept", "reject")
    )
    return StreamOffset(
        expected,
        checked_number("seq", document["seq"]),
        _name("query", document.get("query", "")),
        _name("load", document.get("load", "")),
        acquired,
        Carry(accept, reject),
        names,
        _flag("decides", document.get("decides", False)),
    )


def _check_subscription(document: Mapping[str, Any], expected: Subscription) -> None:
    if document["group"] != expected.group:
        raise CheckpointError(
            f"the checkpoint belongs to share group {document['group']!r}, but the option "
            f"share.group is {expected.group!r}: deliveries of one group are not valid for "
            "another; use a new checkpointLocation"
        )
    if document["subscribe"] != sorted(expected.topics):
        raise CheckpointError(
            f"the checkpoint of share group {expected.group!r} was written with subscribe="
            f"{','.join(document['subscribe'])!r}, now it is "
            f"{','.join(sorted(expected.topics))!r}; use a new checkpointLocation (the group "
            "keeps its own position, nothing is lost)"
        )


def _parse_topics(
    document: Mapping[str, Any], names: dict[TopicId, TopicName]
) -> AcquiredByPartition:
    acquired: dict[TopicIdPartition, tuple[AcquiredRecords, ...]] = {}
    for text, topic in document.items():
        # Kafka prints ids without the padding that Python expects (`Uuid.java`).
        topic_id = TopicId(UUID(bytes=base64.urlsafe_b64decode(text + "==")))
        if not isinstance(topic["topic"], str):
            raise TypeError(f"topic: expected a name, found {topic['topic']!r:.80}")
        names[topic_id] = TopicName(topic["topic"])
        all_counts = topic.get("counts", {})
        for partition, deltas in topic["runs"].items():
            ranges = list(_checked_ranges(deltas))
            counts = all_counts.get(partition, (1, len(ranges)))
            delivery_counts = _delivery_counts(counts)
            number = checked_number("partition", int(partition), 0, PARTITION_MAX)
            acquired[TopicIdPartition(topic_id, number)] = tuple(
                AcquiredRecords.of_range(first, end, count)
                for (first, end), count in zip(ranges, delivery_counts, strict=True)
            )
    return acquired


def checked_number(name: str, value: Any, least: int = 0, most: int = NUMBER_MAX) -> int:
    """Return a number of an offset. ValueError unless it is an integer within the limits."""
    # Not `isinstance`: JSON's true is an int in Python.
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name}: expected {least} to {most}, found {value!r:.80}")
    return value


def _name(name: str, value: Any) -> str:
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise ValueError(f"{name}: expected up to 64 letters, digits, _ and -, found {value!r:.80}")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected true or false, found {value!r:.80}")
    return value


def _delivery_counts(counts: Sequence[Any]) -> Iterator[int]:
    """Iterate over the delivery counts of all runs.

    It is an iterator because the text may claim any number of runs.
    """
    for count, times in _pairs(counts):
        yield from repeat(checked_number("delivery count", count, 1, DELIVERY_COUNT_MAX), times)


def _checked_ranges(deltas: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Iterate over the ranges of flat pairs. ValueError unless they ascend and are not empty."""
    for gap, length in _pairs(deltas):
        checked_number("gap before a run", gap)
        checked_number("length of a run", length, 1, RUN_OFFSETS_MAX)
    for first, end in ranges_of(deltas):
        # The end is exclusive, so it may be one above the highest offset.
        yield first, checked_number("end of a run", end, 0, NUMBER_MAX + 1)


def deltas_of(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Return ascending ranges as flat pairs of gap and length."""
    flat: list[int] = []
    reached = 0
    for first, end in ranges:
        flat += (first - reached, end - first)
        reached = end
    return flat


def ranges_of(deltas: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Iterate over the ranges of flat pairs of gap and length."""
    reached = 0
    for gap, length in _pairs(deltas):
        first = reached + gap
        reached = first + length
        yield first, reached


def _pairs(flat: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _counts(runs: Iterable[AcquiredRecords]) -> list[int]:
    counts: list[int] = []
    for run in runs:
        delivery_count = max(1, run.delivery_count)  # A broker may send any number.
        if counts and counts[-2] == delivery_count:
            counts[-1] += 1
        else:
            counts += (delivery_count, 1)
    return counts


def _runs_of(sets: Sets) -> AcquiredByPartition:
    return {
        key: tuple(AcquiredRecords.of_range(first, end, 1) for first, end in offsets)
        for key, offsets in sets.items()
    }
