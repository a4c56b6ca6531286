"""What honest clients send: without them nothing is left to break after some seconds.

An administrator makes again the topics that were deleted, and takes back configurations.
Producers send sound records.  Members of share groups join, fetch, acknowledge and leave in
sessions that the broker accepts.  Some of these requests are changed in a few places, too.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.alter_configs.v2 import request as alter_configs
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.errors import ErrorCode
from kio.schema.produce.v12 import request as produce
from kio.schema.share_acknowledge.v2 import request as share_acknowledge
from kio.schema.share_fetch.v2 import request as share_fetch
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.update_features.v2 import request as update_features

from tests.fuzz.record_data import sound_batch

TOPICS = ("plain", "compacted", "wide", "short", "made")
SHARE_GROUPS = ("share", "share", "other")
PARTITIONS = 3
JOIN_TURNS_MAX = 20
"""An answer that did not come after so many requests was lost with its connection."""
HELD_MAX = 50
HEARTBEAT, SHARE_FETCH = 76, 78
TOPIC, BROKER, GROUP = 2, 4, 32

Acquired = tuple[UUID, int, int, int]
"""Topic id, partition, first and last offset."""


def administration() -> tuple[Any, ...]:
    """The requests that bring topics, configurations and features in order."""
    topics = tuple(new_topic(name) for name in TOPICS)
    resources = [(TOPIC, name) for name in TOPICS if name != "compacted"]
    resources += [(BROKER, ""), *((GROUP, name) for name in set(SHARE_GROUPS))]
    return (
        create_topics.CreateTopicsRequest(topics=topics, timeout=timedelta(seconds=5)),
        alter_configs.AlterConfigsRequest(
            resources=tuple(
                alter_configs.AlterConfigsResource(
                    resource_type=kind, resource_name=name, configs=()
                )
                for kind, name in resources
            ),
            validate_only=False,
        ),
        update_features.UpdateFeaturesRequest(
            timeout=timedelta(seconds=5),
            feature_updates=(
                update_features.FeatureUpdateKey(
                    feature="share.version", max_version_level=2, upgrade_type=1
                ),
            ),
            validate_only=False,
        ),
    )


def new_topic(name: str) -> create_topics.CreatableTopic:
    """A topic as it is at the beginning."""
    config = create_topics.CreatableTopicConfig(name="cleanup.policy", value="compact")
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=50 if name == "wide" else PARTITIONS,
        replication_factor=1,
        assignments=(),
        configs=(config,) if name == "compacted" else (),
    )


def produce_request(dice: random.Random) -> Any:
    """A request of a producer whose records are taken."""
    return produce.ProduceRequest(
        transactional_id=None,
        acks=dice.choice((-1, 1)),
        timeout=timedelta(seconds=1),
        topic_data=(
            produce.TopicProduceData(
                name=dice.choice(TOPICS),
                partition_data=(
                    produce.PartitionProduceData(
                        index=dice.randrange(PARTITIONS), records=sound_batch(dice)
                    ),
                ),
            ),
        ),
    )


class ShareMember:
    """A member of a share group with its session; `request` is its next one."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._group = dice.choice(SHARE_GROUPS)
        self._id = _member_id(dice)
        self._epoch = 0
        self._joining = 0
        self._session_epoch = 0
        self._held: list[Acquired] = []

    def request(self, topic_ids: Sequence[UUID]) -> Any:
        """The next request; None: it waits until it is a member."""
        dice = self._dice
        if self._epoch <= 0 or dice.random() < 0.1:
            return self._heartbeat()
        kind = dice.random()
        if kind < 0.05:
            self._session_epoch = 0 if dice.random() < 0.5 else -1
        epoch = self._session_epoch
        self._session_epoch = epoch + 1
        if epoch > 0 and kind > 0.6:
            return self._acknowledge(epoch)
        return self._fetch(epoch, topic_ids)

    def learn(self, response: Any) -> None:
        """Take what an answer says of the member, its session and its records."""
        failed = response.error_code is not ErrorCode.none
        if response.__api_key__ == HEARTBEAT:
            self._joining = 0
            self._epoch = 0 if failed else response.member_epoch
        elif failed:
            self._session_epoch = 0
        elif response.__api_key__ == SHARE_FETCH:
            self._held += [
                (topic.topic_id, partition.partition_index, run.first_offset, run.last_offset)
                for topic in response.responses
                for partition in topic.partitions
                for run in partition.acquired_records
            ]
            del self._held[:-HELD_MAX]

    def _heartbeat(self) -> Any:
        joins = self._epoch <= 0
        if joins and self._joining:
            self._joining = (self._joining + 1) % JOIN_TURNS_MAX
            return None
        epoch = self._epoch
        if joins:
            self._joining, self._session_epoch = 1, 0
            self._held.clear()
        elif self._dice.random() < 0.1:
            self._epoch, epoch = 0, -1
        return ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=epoch,
            subscribed_topic_names=TOPICS if joins else None,
        )

    def _fetch(self, epoch: int, topic_ids: Sequence[UUID]) -> Any:
        wanted: dict[UUID, dict[int, list[Any]]] = {}
        if epoch == 0:
            wanted = {topic: {number: [] for number in range(PARTITIONS)} for topic in topic_ids}
        else:
            for topic, partition, *batch in self._settled(share_fetch.AcknowledgementBatch):
                wanted.setdefault(topic, {}).setdefault(partition, []).extend(batch)
        topics = tuple(
            share_fetch.FetchTopic(
                topic_id=topic,
                partitions=tuple(
                    share_fetch.FetchPartition(
                        partition_index=number, acknowledgement_batches=tuple(batches)
                    )
                    for number, batches in partitions.items()
                ),
            )
            for topic, partitions in wanted.items()
        )
        return share_fetch.ShareFetchRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=epoch,
            max_wait=timedelta(),
            min_bytes=0,
            max_bytes=1 << 20,
            max_records=self._dice.choice((1, 10, 500)),
            batch_size=self._dice.choice((1, 10, 500)),
            topics=topics,
            forgotten_topics_data=(),
        )

    def _acknowledge(self, epoch: int) -> Any:
        topics = tuple(
            share_acknowledge.AcknowledgeTopic(
                topic_id=topic,
                partitions=(
                    share_acknowledge.AcknowledgePartition(
                        partition_index=partition, acknowledgement_batches=(batch,)
                    ),
                ),
            )
            for topic, partition, batch in self._settled(share_acknowledge.AcknowledgementBatch)
        )
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=epoch,
            topics=topics,
        )

    def _settled(self, batch_class: type[Any]) -> list[tuple[UUID, int, Any]]:
        """Some of the records that the member holds, with an outcome."""
        dice, settled = self._dice, []
        for _ in range(min(len(self._held), dice.choice((0, 1, 1, 2, 4)))):
            topic, partition, first, last = self._held.pop(dice.randrange(len(self._held)))
            if last - first > 1 and dice.random() < 0.3:
                middle = dice.randrange(first, last)
                self._held.append((topic, partition, middle + 1, last))
                last = middle
            count = last - first + 1 if last - first < 20 and dice.random() < 0.3 else 1
            types = tuple(dice.choice((1, 1, 2, 2, 3, 0)) for _ in range(count))
            made = batch_class(first_offset=first, last_offset=last, acknowledge_types=types)
            settled.append((topic, partition, made))
        return settled


def _member_id(dice: random.Random) -> str:
    return base64.urlsafe_b64encode(dice.randbytes(16)).decode().rstrip("=")
