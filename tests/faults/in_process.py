"""A broker and its clients in one thread, without sockets: everything but the transport.

Requests go through `dispatch` as frames, so they are decoded, decided, stored and answered by
the broker's own code, a thousand times as often as a process could be killed.  Time is a
`ManualClock`, the disk is whatever `Files` the test gives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.describe_share_group_offsets.v1 import request as describe_offsets
from kio.schema.fetch.v12 import request as fetch
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.metadata.v13 import request as metadata
from kio.schema.produce.v12 import request as produce
from kio.schema.share_acknowledge.v2 import request as share_acknowledge
from kio.schema.share_fetch.v2 import request as share_fetch
from kio.schema.share_group_heartbeat.v1 import request as heartbeat

from sharegroup.broker import app
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.handler_contract import HandlerOf
from sharegroup.broker.server.dispatch import dispatch, prepare_steps
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.broker.share.state_pruning import StatePruning
from sharegroup.steps import run_to_end
from sharegroup.storage.disk.files import Files
from sharegroup.storage.parts import Durability
from sharegroup.storage.sync.syncer import Syncer
from sharegroup.testing.virtual_time import ManualClock
from sharegroup.wire.batches.records import decode_records
from sharegroup.wire.codec.apis import APIS, response_class, response_header_version
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_request
from sharegroup.wire.codec.headers import decode_response_header

DATA = "/top/data"
SECOND = timedelta(seconds=1)
ACCEPT, RELEASE, REJECT = 1, 2, 3


class Taken(NamedTuple):
    """A record that was acquired."""

    partition: int
    offset: int
    delivery_count: int
    value: bytes | None


Acks = Mapping[int, Sequence[tuple[int, int]]]
"""By partition: (offset, acknowledge type)."""


class Asks(Protocol):
    """A broker, wherever it runs."""

    async def ask(self, message: Any, connection_id: int = 1) -> Any:
        """The decoded answer to a request."""
        ...


async def topic_id(broker: Asks, name: str) -> UUID | None:
    """None: there is no such topic."""
    wanted = metadata.MetadataRequestTopic(topic_id=None, name=name)
    request = metadata.MetadataRequest(
        topics=(wanted,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    found: UUID | None = (await broker.ask(request)).topics[0].topic_id
    return found


class HurryingClock(ManualClock):
    """A clock on which a millisecond passes whenever it is read, so that slices end."""

    def now_ms(self) -> int:
        self.advance(0.001)
        return super().now_ms()


class PreparedAtOnce(dict[tuple[int, int], Any]):
    """Prepares a type of request when it comes: tests count the turns of the event loop."""

    def get(self, key: tuple[int, int], default: Any = None) -> Any:
        api = APIS[key[0]]
        if key not in self and api.oldest <= key[1] <= api.newest:
            run_to_end(prepare_steps(self, handler_of, *key))
        return super().get(key, default)


def prepare_all(running: app.Running, handler_of: HandlerOf = handler_of) -> None:
    """Prepare every type of request, so that earlier imports of the process make no difference.

    The first request of a type would wait for imports in slices.
    """
    for api in APIS.values():
        for version in range(api.oldest, api.newest + 1):
            run_to_end(prepare_steps(running.parts.prepared, handler_of, api.key, version))


class Broker:
    """One life of a broker on ``files``."""

    def __init__(self, running: app.Running, clock: ManualClock) -> None:
        running.parts.prepared = PreparedAtOnce()
        self.running = running
        self.clock = clock
        self.watch = self._closed_with_the_loop()

    async def _closed_with_the_loop(self) -> AsyncIterator[None]:
        """Close the port when `asyncio.run` ends, if a test that fails does not stop its broker.

        Otherwise the garbage collector finds the socket in another test, and that one fails, too.
        """
        try:
            yield
        finally:
            await self.running.server.stop()

    @classmethod
    async def start(
        cls,
        files: Files | None,
        data: str = DATA,
        *,
        clock: ManualClock | None = None,
        probe_seconds: float = 0.0,
        **settings: str,
    ) -> Broker:
        """``settings`` have ``_`` for the dots of Kafka's names.

        A log that a failed disk has fenced looks at the disk again after ``probe_seconds``: by
        default at every append, because tests have no time to wait.
        """
        clock = clock or ManualClock()
        values = {key.replace("_", "."): value for key, value in settings.items()}
        values |= {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": data}
        syncer = partial(Syncer, probe_seconds=probe_seconds)
        running = await app.start(Config.parse(values), clock=clock, files=files, syncer=syncer)
        broker = cls(running, clock)
        await anext(broker.watch)
        return broker

    async def ask(
        self,
        message: Any,
        connection_id: int = 1,
        *,
        client_id: str = "in-process",
        peer: Peer | None = None,
    ) -> Any:
        """The decoded answer to a request; without ``peer`` that of an anonymous peer."""
        if peer is None:
            peer = Peer("127.0.0.1")
            peer.rights = self.running.parts.rights_of(peer)
        request = b"".join(encode_request(1, client_id, message))[4:]
        reply = dispatch(
            self.running.parts,
            handler_of,
            memoryview(request),
            connection_id=connection_id,
            peer=peer,
        )
        self.clock.advance(0)  # A fetch that may wait for 0 ms is due now.
        chunks = await reply if isinstance(reply, asyncio.Future) else reply
        frame = b"".join(chunks)[4:]
        key, version = message.__api_key__, message.__version__
        _, position = decode_response_header(frame, response_header_version(key, version))
        return decode(response_class(key, version), frame, position)[0]

    async def create_topic(self, name: str, partitions: int) -> int:
        """The error code."""
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        request = create_topics.CreateTopicsRequest(topics=(topic,), timeout=SECOND)
        return int((await self.ask(request)).topics[0].error_code)

    async def topic_id(self, name: str) -> UUID | None:
        """None: there is no such topic."""
        return await topic_id(self, name)

    async def new_producer_id(self) -> tuple[int, int]:
        """Error code and id."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout=SECOND
        )
        answer = await self.ask(request)
        return int(answer.error_code), answer.producer_id

    async def produce(self, topic: str, partition: int, batch: bytearray) -> tuple[int, int]:
        """Error code and base offset; ``batch`` is not changed."""
        partition_entry = produce.PartitionProduceData(index=partition, records=bytes(batch))
        request = produce.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout=SECOND,
            topic_data=(produce.TopicProduceData(name=topic, partition_data=(partition_entry,)),),
        )
        answer = (await self.ask(request)).responses[0].partition_responses[0]
        return int(answer.error_code), answer.base_offset

    async def fetch(self, topic: str, partition: int, offset: int) -> tuple[int, dict[int, bytes]]:
        """Error code and the values by offset of one plain fetch."""
        partition_entry = fetch.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24
        )
        request = fetch.FetchRequest(
            replica_id=-1,
            max_wait=timedelta(0),
            min_bytes=0,
            topics=(fetch.FetchTopic(topic=topic, partitions=(partition_entry,)),),
            forgotten_topics_data=(),
        )
        answer = (await self.ask(request)).responses[0].partitions[0]
        records = decode_records(answer.records or b"")
        values = {
            record.offset: bytes(record.value or b"")
            for record in records
            if record.offset >= offset
        }
        return int(answer.error_code), values

    async def read_all(self, topic: str, partition: int) -> dict[int, bytes]:
        """Every value by offset."""
        values: dict[int, bytes] = {}
        while True:
            error, more = await self.fetch(topic, partition, max(values, default=-1) + 1)
            assert error == 0
            if not more:
                return values
            values |= more

    async def group_offsets(
        self, group: str, topic: str, partitions: int
    ) -> list[tuple[int, int | None]]:
        """Start offset and lag of each partition."""
        wanted = describe_offsets.DescribeShareGroupOffsetsRequestTopic(
            topic_name=topic, partitions=tuple(range(partitions))
        )
        group_entry = describe_offsets.DescribeShareGroupOffsetsRequestGroup(
            group_id=group, topics=(wanted,)
        )
        answer = await self.ask(
            describe_offsets.DescribeShareGroupOffsetsRequest(groups=(group_entry,))
        )
        assert int(answer.groups[0].error_code) == 0
        return [
            (partition.start_offset, partition.lag)
            for partition in answer.groups[0].topics[0].partitions
        ]

    def pruning(self, **limits: int) -> StatePruning:
        """The same pruning of states as the broker's own, with other limits."""
        parts, directory = self.running.parts, self.running.directory
        return StatePruning(
            parts.share_coordinator,
            parts.topics,
            parts.clock,
            parts.config.coordinator,
            is_on=lambda: True,
            checkpoint=directory.checkpoint if directory.durability is Durability.OS else None,
            **limits,
        )

    async def stop(self) -> None:
        await self.running.stop()

    async def crash(self) -> None:
        """End without a chance to write anything more; the disk has lost its power already."""
        await self.running.abandon()


@dataclass
class ShareMember:
    """A member of a share group that speaks the protocol by hand."""

    group: str
    member_id: str
    topic: str
    partitions: int
    connection_id: int
    member_epoch: int = 0
    session_epoch: int = 0
    joined: bool = False
    """A heartbeat was confirmed at least once."""
    topic_id: UUID | None = field(default=None, repr=False)

    def broker_restarted(self) -> None:
        """Sessions are gone with the broker that had them."""
        self.session_epoch = 0

    async def heartbeat(self, broker: Asks) -> int:
        """The error code; a member that is not known any more joins anew the next time."""
        answer = await broker.ask(
            heartbeat.ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=self.member_epoch,
                rack_id=None,
                subscribed_topic_names=(self.topic,) if self.member_epoch == 0 else None,
            ),
            self.connection_id,
        )
        error = int(answer.error_code)
        if error == 0:
            self.member_epoch, self.joined = answer.member_epoch, True
        elif error != 16:  # The disk takes no writes: it is tried again.
            self.member_epoch = 0
        return error

    async def fetch(
        self, broker: Asks, *, records_max: int, acks: Acks | None = None, wait_ms: int = 0
    ) -> tuple[list[Taken], dict[int, int]]:
        """Acquired records, and the error code of each partition that ``acks`` has."""
        acks = acks or {}
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            max_wait=timedelta(milliseconds=wait_ms),
            min_bytes=0,
            max_bytes=1 << 20,
            max_records=records_max,
            batch_size=records_max,
            topics=await self._topics(broker, share_fetch, "Fetch", acks),
            forgotten_topics_data=(),
        )
        answer = await broker.ask(request, self.connection_id)
        if not self._went_on(answer.error_code):
            return [], dict.fromkeys(acks, int(answer.error_code))
        outcomes, taken = dict.fromkeys(acks, 0), []
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.partition_index in acks:
                    outcomes[partition.partition_index] = int(partition.acknowledge_error_code)
                taken += _taken(partition)
        return taken, outcomes

    async def acknowledge(self, broker: Asks, acks: Acks) -> dict[int, int]:
        """The error code of each partition."""
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=await self._topics(broker, share_acknowledge, "Acknowledge", acks),
        )
        answer = await broker.ask(request, self.connection_id)
        if not self._went_on(answer.error_code):
            return dict.fromkeys(acks, int(answer.error_code))
        return {
            partition.partition_index: int(partition.error_code)
            for topic in answer.responses
            for partition in topic.partitions
        }

    def _went_on(self, error_code: int) -> bool:
        self.session_epoch = self.session_epoch + 1 if error_code == 0 else 0
        return error_code == 0

    async def _topics(self, broker: Asks, module: Any, verb: str, acks: Acks) -> tuple[Any, ...]:
        if self.topic_id is None:
            self.topic_id = await topic_id(broker, self.topic)
        named = range(self.partitions) if self.session_epoch == 0 else sorted(acks)
        partitions = tuple(
            getattr(module, f"{verb}Partition")(
                partition_index=number,
                acknowledgement_batches=tuple(
                    module.AcknowledgementBatch(
                        first_offset=offset, last_offset=offset, acknowledge_types=(kind,)
                    )
                    for offset, kind in acks.get(number, ())
                ),
            )
            for number in named
        )
        topic = getattr(module, f"{verb}Topic")
        return (topic(topic_id=self.topic_id, partitions=partitions),) if partitions else ()


def _taken(partition: Any) -> list[Taken]:
    if not partition.acquired_records:
        return []
    values = {record.offset: record.value for record in decode_records(partition.records or b"")}
    return [
        Taken(
            partition.partition_index,
            offset,
            acquired.delivery_count,
            None if values[offset] is None else bytes(values[offset]),
        )
        for acquired in partition.acquired_records
        for offset in range(acquired.first_offset, acquired.last_offset + 1)
    ]
