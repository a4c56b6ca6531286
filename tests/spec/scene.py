"""What one test of the spec has at hand: topics, records, groups and their members.

A scene talks to the broker as anybody could, over the wire alone.  Where the broker does
something in its own time (a new topic, a new setting) the scene waits until it can be seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import count
from types import TracebackType
from typing import Any, Self

from kio.schema.create_partitions.v3 import request as create_partitions
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.delete_records.v2 import request as delete_records
from kio.schema.delete_topics.v6 import request as delete_topics
from kio.schema.describe_configs.v4 import request as describe_configs
from kio.schema.describe_share_group_offsets.v1 import request as describe_offsets
from kio.schema.fetch.v12 import request as fetch
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.metadata.v13 import request as metadata
from kio.schema.produce.v12 import request as produce
from kio.schema.share_group_describe.v1 import request as share_group_describe

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.spec.connection import CLIENT_ID, Connection
from tests.spec.member import Member
from tests.spec.messages import Topic
from tests.spec.peer import Kind, Peer
from tests.spec.waiting import wait_for

GROUP_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE = 32, 4, 2
LATEST, EARLIEST = -1, -2
ALTER_SET, ALTER_DELETE = 0, 1
UNEXPECTED_EPOCH, SHARE_SESSION_NOT_FOUND = 1_000_000, 122
TIMEOUT = timedelta(seconds=10)


class Scene:
    """Topics, records, groups and members for one test; its exit closes all connections."""

    def __init__(self, peer: Peer, name: str) -> None:
        self.peer = peer
        self.name = name
        self._numbers = count(1)
        self._connections: list[Connection] = []
        self.admin = self.connect()
        """A connection for whatever has no member."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._connections:
            connection.socket.close()

    @property
    def kind(self) -> Kind:
        return self.peer.kind

    def connect(self, client_id: str = CLIENT_ID) -> Connection:
        connection = Connection(self.peer.port, client_id)
        self._connections.append(connection)
        return connection

    def ask(self, message: Any) -> Any:
        return self.admin.ask(message)

    def new_name(self, kind: str) -> str:
        return f"{self.name}.{kind}{next(self._numbers)}"

    # Topics and records.

    def topic(self, partitions: int = 1, *, name: str | None = None, **configs: str) -> Topic:
        """A new topic, ready to be written; ``configs`` have ``_`` for the dots."""
        name = name or self.new_name("topic")
        values = tuple(
            create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        )
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=values,
        )
        request = create_topics.CreateTopicsRequest(topics=(topic,), timeout=TIMEOUT)
        [answer] = self.ask(request).topics
        assert answer.error_code == 0, answer
        return self.known_topic(name, partitions)

    def known_topic(self, name: str, partitions: int) -> Topic:
        """A topic of so many partitions, when the broker leads all of them."""

        def look() -> Topic | None:
            found = self.metadata(name)
            led = [partition for partition in found.partitions if partition.error_code == 0]
            return Topic(name, found.topic_id, partitions) if len(led) == partitions else None

        return wait_for(look, f"{partitions} partitions of {name}")

    def metadata(self, name: str) -> Any:
        """What the broker says of one topic."""
        request = metadata.MetadataRequest(
            topics=(metadata.MetadataRequestTopic(topic_id=None, name=name),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return self.ask(request).topics[0]

    def grow(self, topic: Topic, count: int) -> Topic:
        """The same topic with more partitions."""
        topic_entry = create_partitions.CreatePartitionsTopic(
            name=topic.name, count=count, assignments=None
        )
        request = create_partitions.CreatePartitionsRequest(
            topics=(topic_entry,), timeout=TIMEOUT, validate_only=False
        )
        assert self.ask(request).results[0].error_code == 0
        return self.known_topic(topic.name, count)

    def delete_topic(self, topic: Topic) -> None:
        state = delete_topics.DeleteTopicState(name=topic.name, topic_id=None)
        request = delete_topics.DeleteTopicsRequest(topics=(state,), timeout=TIMEOUT)
        assert self.ask(request).responses[0].error_code == 0
        wait_for(lambda: self.metadata(topic.name).error_code == 3, f"{topic.name} to be gone")

    def produce(
        self, topic: Topic, *batches: int, partition: int = 0, at_ms: int | None = None
    ) -> None:
        """Batches of so many records each; a record's value is its number in its batch."""
        now = int(time.time() * 1000) if at_ms is None else at_ms
        for size in batches:
            records = [SimpleRecord(None, b"%d" % number, now) for number in range(size)]
            self.produce_batch(topic, encode_batch(records), partition=partition)

    def produce_batch(self, topic: Topic, batch: bytes | bytearray, *, partition: int = 0) -> int:
        """One batch as it is; the offset it was given."""

        def attempt() -> Any:
            answer = self.produced(topic, batch, partition=partition)
            return None if answer.error_code in {3, 6} else answer

        answer = wait_for(attempt, f"{topic.name}-{partition} to be led")
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def produced(self, topic: Topic, batch: bytes | bytearray, *, partition: int = 0) -> Any:
        """The answer to producing one batch as it is."""
        partition_entry = produce.PartitionProduceData(index=partition, records=bytes(batch))
        request = produce.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout=TIMEOUT,
            topic_data=(
                produce.TopicProduceData(name=topic.name, partition_data=(partition_entry,)),
            ),
        )
        return self.ask(request).responses[0].partition_responses[0]

    def delete_records(self, topic: Topic, before: int, *, partition: int = 0) -> None:
        """Move the log's start."""
        partition_entry = delete_records.DeleteRecordsPartition(
            partition_index=partition, offset=before
        )
        request = delete_records.DeleteRecordsRequest(
            topics=(
                delete_records.DeleteRecordsTopic(name=topic.name, partitions=(partition_entry,)),
            ),
            timeout=TIMEOUT,
        )
        [answer] = self.ask(request).topics[0].partitions
        assert (answer.error_code, answer.low_watermark) == (0, before), answer

    def offset(
        self, topic: Topic, timestamp: int = LATEST, *, partition: int = 0, committed: bool = False
    ) -> int:
        """What ListOffsets says; ``committed`` to who reads only what is."""
        partition_entry = list_offsets.ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp
        )
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=(list_offsets.ListOffsetsTopic(name=topic.name, partitions=(partition_entry,)),),
        )
        return int(self.ask(request).topics[0].partitions[0].offset)

    def fetch_bytes(
        self, topic: Topic, offset: int, *, partition: int = 0, committed: bool = False
    ) -> bytes:
        """What a plain fetch finds from an offset on, as it came."""
        partition_entry = fetch.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24
        )
        request = fetch.FetchRequest(
            replica_id=-1,
            max_wait=timedelta(0),
            min_bytes=0,
            isolation_level=int(committed),
            topics=(fetch.FetchTopic(topic=topic.name, partitions=(partition_entry,)),),
            forgotten_topics_data=(),
        )
        answer = self.ask(request).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        return bytes(answer.records or b"")

    # Groups and settings.

    def group(self, **configs: str) -> str:
        """A new group id; it starts at the earliest record unless it is said otherwise."""
        group = self.new_name("group")
        values = {"share_auto_offset_reset": "earliest", **configs}
        self.alter_group(group, **values)
        return group

    def alter_group(self, group: str, **configs: str) -> None:
        """Set configs of a group; returns when the broker shows them."""
        wanted = {key.replace("_", "."): value for key, value in configs.items()}
        answer = self.alter_configs(GROUP_RESOURCE, group, wanted)
        assert answer.error_code == 0, answer
        wait_for(
            lambda: wanted.items() <= self.configs(GROUP_RESOURCE, group).items(),
            f"{wanted} of group {group}",
        )

    def alter_configs(
        self, kind: int, name: str, configs: dict[str, str], operation: int = ALTER_SET
    ) -> Any:
        """The answer to IncrementalAlterConfigs for one resource."""
        resource = alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(
                alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, value in configs.items()
            ),
        )
        request = alter_configs.IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=False
        )
        return self.ask(request).responses[0]

    def described_configs(self, kind: int, name: str) -> Any:
        """The answer to DescribeConfigs for one resource."""
        resource = describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = describe_configs.DescribeConfigsRequest(
            resources=(resource,), include_synonyms=True, include_documentation=True
        )
        return self.ask(request).results[0]

    def configs(self, kind: int, name: str) -> dict[str, str | None]:
        """The values of a resource by name."""
        return {config.name: config.value for config in self.described_configs(kind, name).configs}

    def member(self, group: str, *topics: Topic) -> Member:
        """A member on a connection of its own, joined when topics are given."""
        member = Member(self.connect(), group)
        return member.join(*topics) if topics else member

    def drop(self, member: Member) -> None:
        """Cut a member's connection; returns when the broker has noticed.

        A session that is there refuses an epoch that it does not expect, another way than one
        that is not.
        """
        member.connection.socket.close()
        probe = member.fetch_request(epoch=UNEXPECTED_EPOCH)
        wait_for(
            lambda: self.ask(probe).error_code == SHARE_SESSION_NOT_FOUND, "the session to be over"
        )

    def describe(self, group: str) -> Any:
        """The answer to ShareGroupDescribe for one group."""
        request = share_group_describe.ShareGroupDescribeRequest(
            group_ids=(group,), include_authorized_operations=False
        )
        return self.ask(request).groups[0]

    def group_offsets(
        self, group: str, topics: Iterable[tuple[str, Sequence[int]]] | None = None
    ) -> Any:
        """The answer to DescribeShareGroupOffsets for one group; None asks for all topics."""
        wanted = None
        if topics is not None:
            wanted = tuple(
                describe_offsets.DescribeShareGroupOffsetsRequestTopic(
                    topic_name=name, partitions=tuple(partitions)
                )
                for name, partitions in topics
            )
        group_entry = describe_offsets.DescribeShareGroupOffsetsRequestGroup(
            group_id=group, topics=wanted
        )
        return self.ask(
            describe_offsets.DescribeShareGroupOffsetsRequest(groups=(group_entry,))
        ).groups[0]

    def start_and_lag(self, group: str, topic: Topic, partition: int = 0) -> tuple[int, int]:
        """What the group's state says of one partition."""
        answer = self.group_offsets(group, [(topic.name, [partition])])
        [described] = answer.topics[0].partitions
        assert described.error_code == 0, described
        return described.start_offset, described.lag
