"""A member of a share group that speaks the protocol by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self
from uuid import uuid4

from kio.schema.share_acknowledge.v2 import request as share_acknowledge
from kio.schema.share_fetch.v2 import request as share_fetch
from kio.schema.share_group_heartbeat.v1 import request as share_group_heartbeat

from tests.spec.connection import Connection
from tests.spec.messages import (
    CLOSE,
    JOIN,
    LEAVE,
    OPEN,
    Acknowledged,
    Fetched,
    Partition,
    Range,
    Topic,
    acknowledge_topics,
    fetch_topics,
    forgotten,
    milliseconds,
)
from tests.spec.waiting import wait_for

WAIT_MS = 500

Acks = Sequence[Range] | Mapping[Partition, Sequence[Range]]
"""Ranges of the member's first partition, or of each partition that is named."""


class Member:
    """Its epochs go on by themselves; each request can be given any other."""

    def __init__(self, connection: Connection, group: str, member_id: str | None = None) -> None:
        self.connection = connection
        self.group = group
        self.member_id = member_id or str(uuid4())
        self.epoch = JOIN
        self.session_epoch = OPEN
        self.assigned: set[Partition] = set()
        self.topics: tuple[Topic, ...] = ()

    # Membership.

    def heartbeat(
        self,
        *,
        epoch: int | None = None,
        topics: Iterable[str] | None = None,
        rack: str | None = None,
        member_id: str | None = None,
    ) -> Any:
        """One heartbeat; a confirmed one moves the member's epoch and assignment."""
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id if member_id is None else member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            rack_id=rack,
            subscribed_topic_names=None if topics is None else tuple(topics),
        )
        answer = self.connection.ask(request)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {
                    (topic.topic_id, number)
                    for topic in answer.assignment.topic_partitions
                    for number in topic.partitions
                }
        return answer

    def join(self, *topics: Topic) -> Self:
        """Subscribe, and return when the member has been assigned something."""
        self.topics = topics
        answer = self.heartbeat(epoch=JOIN, topics=[topic.name for topic in topics])
        assert answer.error_code == 0, answer
        return self.until_assigned()

    def until_assigned(self, count: int = 1) -> Self:
        """Heartbeats until so many partitions are the member's."""

        def assigned() -> bool:
            return len(self.assigned) >= count or self._hear() >= count

        wait_for(assigned, f"{count} partitions")
        return self

    def _hear(self) -> int:
        """One more heartbeat; how many partitions the member has."""
        assert self.heartbeat().error_code == 0
        return len(self.assigned)

    def leave(self) -> Any:
        return self.heartbeat(epoch=LEAVE)

    # Records.

    def partitions(self) -> list[Partition]:
        return [partition for topic in self.topics for partition in topic.partitions()]

    def fetch_request(
        self,
        acks: Acks = (),
        *,
        partitions: Iterable[Partition] | None = None,
        forget: Iterable[Partition] = (),
        wait_ms: int = 0,
        strict: bool = False,
        epoch: int | None = None,
        **fields: Any,
    ) -> share_fetch.ShareFetchRequest:
        """The next ShareFetch; one that opens the session names all partitions."""
        epoch = self.session_epoch if epoch is None else epoch
        if partitions is None:
            partitions = self.partitions() if epoch == OPEN else ()
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": epoch,
            "max_wait": milliseconds(wait_ms),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": int(strict),
            "topics": fetch_topics(partitions, self._acks(acks)),
            "forgotten_topics_data": forgotten(forget),
        }
        if fields.get("is_renew_ack"):
            values |= {"min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
        return share_fetch.ShareFetchRequest(**(values | fields))

    def fetch(self, acks: Acks = (), **fields: Any) -> Fetched:
        request = self.fetch_request(acks, **fields)
        self.connection.begin(request)
        return self.finish_fetch(request)

    def begin_fetch(self, wait_ms: int = WAIT_MS, **fields: Any) -> share_fetch.ShareFetchRequest:
        """Send a fetch that may be parked; `finish_fetch` has its answer."""
        request = self.fetch_request(wait_ms=wait_ms, **fields)
        self.connection.begin(request)
        return request

    def finish_fetch(self, request: share_fetch.ShareFetchRequest) -> Fetched:
        answer = Fetched(self.connection.finish(request))
        if answer.error == 0:
            closes = request.share_session_epoch == CLOSE
            self.session_epoch = OPEN if closes else request.share_session_epoch + 1
        return answer

    def take(self, count: int = 1, **fields: Any) -> list[tuple[int, int, int]]:
        """Fetches until so many records were acquired: their ranges."""
        taken: list[tuple[int, int, int]] = []

        def enough() -> bool:
            answer = self.fetch(**{"wait_ms": WAIT_MS, **fields})
            assert answer.error == 0, answer.raw
            taken.extend(answer.acquired)
            return sum(last - first + 1 for first, last, _ in taken) >= count

        wait_for(enough, f"{count} records")
        return taken

    def open(self, *topics: Topic) -> Self:
        """Open a session that takes no records."""
        self.topics = topics or self.topics
        assert self.fetch(epoch=OPEN, max_records=0).error == 0
        return self

    def load(self) -> None:
        """Have the broker load the share partitions: the next fetch finds what there is."""
        assert self.fetch(wait_ms=200).error == 0

    def close(self, acks: Acks = ()) -> Acknowledged:
        """End the session."""
        return self.acknowledge(acks, epoch=CLOSE)

    def acknowledge(
        self,
        acks: Acks,
        *,
        epoch: int | None = None,
        renew: bool = False,
        **fields: Any,
    ) -> Acknowledged:
        request = share_acknowledge.ShareAcknowledgeRequest(
            **{
                "group_id": self.group,
                "member_id": self.member_id,
                "share_session_epoch": self.session_epoch if epoch is None else epoch,
                "is_renew_ack": renew,
                "topics": acknowledge_topics(self._acks(acks)),
                **fields,
            }
        )
        answer = Acknowledged(self.connection.ask(request))
        if answer.error == 0:
            closes = request.share_session_epoch == CLOSE
            self.session_epoch = OPEN if closes else request.share_session_epoch + 1
        return answer

    def _acks(self, acks: Acks) -> Mapping[Partition, Sequence[Range]]:
        if isinstance(acks, Mapping):
            return acks
        return {self.partitions()[0]: acks} if acks else {}
