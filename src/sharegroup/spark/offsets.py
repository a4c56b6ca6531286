"""A position in the stream, as Spark logs it: what a batch holds, and what is carried.

A share group has no position that one could read from; the broker hands out records.  So the
"offset" of a batch is the list of what was handed out for it, and with Spark's own log of
offsets a batch that is replayed reads the same records again.  The text must stay small (it
goes into the log, three times into each progress report, and it is compared as text):

    {"v": 1, "seq": 7, "group": "billing", "subscribe": ["orders"],
     "query": "8b1e...", "load": "5f0c...",
     "acquired": {"6uO1jO3BTk2YwDkLwxhW8w": {"topic": "orders",
                                             "runs": {"0": [100, 50, 7, 3]},
                                             "counts": {"0": [1, 1, 2, 1]}}},
     "carry": {"accept": {...}, "reject": {...}}}

Runs are flat pairs of gap and length, so [100, 50, 7, 3] is [100, 150) and [157, 160); counts
are pairs of delivery count and number of runs, left out when every count is 1.  Topics go by
their id, because a topic that was made again is another one; the name is for people and for
the rows.  ``seq`` numbers the batches with records, ``query`` is the query's name and member id
for as long as its checkpoint lives, ``load`` names the `load()` that this batch is of
(`decision_files`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from sharegroup.client.offset_set import OffsetSet
from sharegroup.ids import TopicId, TopicName, TopicPartition, topic_id_text
from sharegroup.spark.carry import Acquired, Carry, Sets
from sharegroup.spark.partition import Run

VERSION = 1
Json = dict[str, Any]


class CheckpointError(ValueError):
    """The checkpoint is of another query, or of a version that this one can't read."""


class Subscription(NamedTuple):
    """What a checkpoint belongs to."""

    group: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """See the module's text."""

    subscription: Subscription
    seq: int = 0
    query: str = ""
    load: str = ""
    acquired: Acquired = field(default_factory=dict)
    carry: Carry = field(default_factory=Carry)
    names: Mapping[TopicId, TopicName] = field(default_factory=dict)
    """Of every topic that occurs in it."""

    def to_json(self) -> Json:
        """As Spark logs it; equal offsets give equal texts."""
        said: Json = {
            "v": VERSION,
            "seq": self.seq,
            "group": self.subscription.group,
            "subscribe": sorted(self.subscription.topics),
        }
        if self.seq:
            said |= {"query": self.query, "load": self.load}
        if self.acquired:
            said["acquired"] = self._by_topic(self.acquired)
        carry = {"accept": self.carry.accept, "reject": self.carry.reject}
        if self.carry.count:
            said["carry"] = {
                kind: self._by_topic(_runs_of(sets)) for kind, sets in carry.items() if sets
            }
        return said

    def _by_topic(self, acquired: Acquired) -> Json:
        said: Json = {}
        for key in sorted(acquired):
            runs = acquired[key]
            topic = said.setdefault(
                topic_id_text(key.topic_id), {"topic": self.names[key.topic_id], "runs": {}}
            )
            topic["runs"][str(key.partition)] = deltas_of((run.first, run.end) for run in runs)
            counts = _counts(runs)
            if counts[::2] != [1]:
                topic.setdefault("counts", {})[str(key.partition)] = counts
        return said


def parse(said: Mapping[str, Any], expected: Subscription) -> StreamOffset:
    """What Spark logged; CheckpointError when it is not of this query."""
    if said.get("v") != VERSION:
        raise CheckpointError(
            f"the checkpoint's offset has version {said.get('v')!r}; expected {VERSION}, written "
            f"by the format kafka-share: {str(said)[:200]}"
        )
    _check_subscription(said, expected)
    names: dict[TopicId, TopicName] = {}
    acquired = _parse_topics(said.get("acquired", {}), names)
    carry = said.get("carry", {})
    accept, reject = (
        _sets_of(_parse_topics(carry.get(kind, {}), names)) for kind in ("accept", "reject")
    )
    return StreamOffset(
        expected,
        said["seq"],
        said.get("query", ""),
        said.get("load", ""),
        acquired,
        Carry(accept, reject),
        names,
    )


def _check_subscription(said: Mapping[str, Any], expected: Subscription) -> None:
    if said["group"] != expected.group:
        raise CheckpointError(
            f"the checkpoint belongs to share group {said['group']!r}, the option share.group is "
            f"{expected.group!r}: what one group delivered means nothing to another; "
            "use a new checkpointLocation"
        )
    if said["subscribe"] != sorted(expected.topics):
        raise CheckpointError(
            f"the checkpoint of share group {expected.group!r} was written with subscribe="
            f"{','.join(said['subscribe'])!r}, now it is {','.join(sorted(expected.topics))!r}; "
            "use a new checkpointLocation (the group keeps its own position, nothing is lost)"
        )


def _parse_topics(said: Mapping[str, Any], names: dict[TopicId, TopicName]) -> Acquired:
    acquired: dict[TopicPartition, tuple[Run, ...]] = {}
    for text, topic in said.items():
        topic_id = TopicId(UUID(bytes=base64.urlsafe_b64decode(text + "==")))
        names[topic_id] = TopicName(topic["topic"])
        all_counts = topic.get("counts", {})
        for partition, deltas in topic["runs"].items():
            ranges = list(ranges_of(deltas))
            counts = all_counts.get(partition, (1, len(ranges)))
            delivery_counts = (count for count, times in _pairs(counts) for _ in range(times))
            acquired[TopicPartition(topic_id, int(partition))] = tuple(
                Run(first, end, count)
                for (first, end), count in zip(ranges, delivery_counts, strict=True)
            )
    return acquired


def deltas_of(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Ascending ranges as flat pairs of gap and length."""
    flat: list[int] = []
    reached = 0
    for first, end in ranges:
        flat += (first - reached, end - first)
        reached = end
    return flat


def ranges_of(deltas: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The ranges of flat pairs of gap and length."""
    reached = 0
    for gap, length in _pairs(deltas):
        first = reached + gap
        reached = first + length
        yield first, reached


def _pairs(flat: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _counts(runs: Iterable[Run]) -> list[int]:
    counts: list[int] = []
    for run in runs:
        if counts and counts[-2] == run.delivery_count:
            counts[-1] += 1
        else:
            counts += (run.delivery_count, 1)
    return counts


def _runs_of(sets: Sets) -> Acquired:
    return {key: tuple(Run(first, end, 1) for first, end in some) for key, some in sets.items()}


def _sets_of(runs: Acquired) -> Sets:
    return {
        key: OffsetSet(tuple((run.first, run.end) for run in some)) for key, some in runs.items()
    }
