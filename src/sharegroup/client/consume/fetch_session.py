"""The fetch session with one broker (KIP-227), without I/O.

The first request names all partitions (session epoch 0).  The broker remembers them under a session
id, and later requests name only the partitions that are new or have changed, and those to forget.
A broker without room for a session answers with session id 0, and all requests stay full.

    epoch 0: all partitions --> id, epoch 1: changes --> epoch 2: changes --> ...
        ^                                  |
        '------ any error, or no answer ---'
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kio.schema.fetch.v18.request import FetchPartition, FetchTopic, ForgottenTopic
from kio.static.primitive import i32, i64

from sharegroup.errors import FetchSessionIdNotFound
from sharegroup.ids import TopicId

NO_SESSION = 0
FULL_EPOCH = 0
CLOSING_EPOCH = -1
EPOCH_MAX = 2**31 - 1

PartitionKey = tuple[TopicId, int]
"""A partition as requests and responses name it."""


class FetchEntry(NamedTuple):
    """What a request says about one partition."""

    offset: int
    leader_epoch: int
    last_epoch: int
    """The epoch of the last record below the offset; -1 if unknown.  It shows a divergence."""
    bytes_max: int


class FetchSessionRequest(NamedTuple):
    """The parts of a Fetch request that the session decides."""

    session_id: int
    session_epoch: int
    topics: tuple[FetchTopic, ...]
    forgotten: tuple[ForgottenTopic, ...]


class FetchSession:
    """The partitions that one broker remembers for this consumer."""

    __slots__ = ("_entries", "_epoch", "_id")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._entries: dict[PartitionKey, FetchEntry] = {}

    def request(self, wanted: Mapping[PartitionKey, FetchEntry]) -> FetchSessionRequest:
        """Return the next request, after which the session has exactly these partitions."""
        if self._epoch == FULL_EPOCH:
            named, forgotten = dict(wanted), set[PartitionKey]()
        else:
            named = {key: entry for key, entry in wanted.items() if self._entries.get(key) != entry}
            forgotten = self._entries.keys() - wanted.keys()
        # Before the answer: if there is none, `lost` forgets all of it.
        self._entries = dict(wanted)
        return FetchSessionRequest(self._id, self._epoch, _topics(named), _forgotten(forgotten))

    def answered(self, session_id: int) -> None:
        """Note a response without error; its session id is 0 if the broker keeps no session."""
        if session_id == NO_SESSION:
            self.lost()
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def refused(self, code: int) -> None:
        """Note an error of the session: the next request names all partitions."""
        # With any other error the id is sent with epoch 0, which closes that session and opens
        # another, as in `FetchMetadata.nextCloseExistingAttemptNew`.
        if code == FetchSessionIdNotFound.code:
            self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._entries = {}

    def lost(self) -> None:
        """Note that there was no answer, or that there is no session."""
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._entries = {}

    def closing_request(self) -> FetchSessionRequest | None:
        """Return the request that ends the session; None if there is none."""
        if self._id == NO_SESSION:
            return None
        return FetchSessionRequest(self._id, CLOSING_EPOCH, (), ())


def _topics(entries: Mapping[PartitionKey, FetchEntry]) -> tuple[FetchTopic, ...]:
    by_topic: dict[TopicId, list[FetchPartition]] = defaultdict(list)
    for (topic_id, partition), entry in entries.items():
        by_topic[topic_id].append(
            FetchPartition(
                partition=i32(partition),
                current_leader_epoch=i32(entry.leader_epoch),
                fetch_offset=i64(entry.offset),
                last_fetched_epoch=i32(entry.last_epoch),
                partition_max_bytes=i32(entry.bytes_max),
            )
        )
    return tuple(
        FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
        for topic_id, partitions in by_topic.items()
    )


def _forgotten(keys: Iterable[PartitionKey]) -> tuple[ForgottenTopic, ...]:
    by_topic: dict[TopicId, list[Any]] = defaultdict(list)
    for topic_id, partition in sorted(keys):
        by_topic[topic_id].append(i32(partition))
    return tuple(
        ForgottenTopic(topic_id=topic_id, partitions=tuple(partitions))
        for topic_id, partitions in by_topic.items()
    )
