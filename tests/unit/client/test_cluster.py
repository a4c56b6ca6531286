"""What a client remembers of a cluster, which may name new things for ever."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from sharegroup.client import cluster as cluster_module
from sharegroup.client.cluster import Cluster
from sharegroup.client.config import ClientConfig
from sharegroup.errors import KafkaError, NetworkException, UnknownTopicOrPartition
from sharegroup.ids import TopicId


def described(name: str, number: int, *, error: int = 0) -> MetadataResponseTopic:
    partition: dict[str, Any] = {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": 1,
        "replica_nodes": (1,),
        "isr_nodes": (1,),
        "offline_replicas": (),
    }
    values: dict[str, Any] = {
        "error_code": error,
        "name": name,
        "topic_id": UUID(int=number),
        "partitions": (MetadataResponsePartition(**partition),),
    }
    return MetadataResponseTopic(**values)


class Connection:
    """Answers with one topic after the other."""

    is_open = False

    def __init__(self) -> None:
        self.topics: tuple[MetadataResponseTopic, ...] = ()
        self.port = 9092
        self.peer = ""

    async def request(self, _: Any) -> MetadataResponse:
        broker: dict[str, Any] = {"node_id": 1, "host": "127.0.0.1", "port": self.port}
        values: dict[str, Any] = {
            "throttle_time": None,
            "brokers": (MetadataResponseBroker(**broker),),
            "cluster_id": "c",
            "controller_id": 1,
            "topics": self.topics,
            "error_code": 0,
        }
        return MetadataResponse(**values)

    def close(self) -> None:
        pass


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    made = Connection()

    async def open_connection(*_: Any, **__: Any) -> Connection:
        return made

    monkeypatch.setattr(cluster_module, "open_connection", open_connection)
    return made


def test_ids_that_a_topic_had_are_forgotten_one_day(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "FORMER_IDS_MAX", 3)

    async def run() -> list[str | None]:
        cluster = Cluster(ClientConfig())
        for number in range(10):
            connection.topics = (described("often made again", number), described("kept", 77))
            await cluster.refresh(["often made again", "kept"])
        return [cluster.name_of(TopicId(UUID(int=number))) for number in (*range(10), 77)]

    assert asyncio.run(run()) == [None] * 6 + ["often made again"] * 4 + ["kept"]


def test_topics_that_nobody_asked_for_are_not_remembered(connection: Connection) -> None:
    async def run() -> None:
        cluster = Cluster(ClientConfig())
        connection.topics = tuple(described(f"t{number}", number) for number in range(5))
        assert sorted(await cluster.refresh(["t3"])) == ["t0", "t1", "t2", "t3", "t4"]
        assert [cluster.last_known_topic(f"t{number}") is None for number in range(5)] == [
            True, True, True, False, True,
        ]  # fmt: skip
        assert len(await cluster.refresh(None)) == 5
        assert cluster.last_known_topic("t1") is None

    asyncio.run(run())


def test_topic_that_is_gone_is_forgotten(connection: Connection) -> None:
    async def run() -> KafkaError | Any:
        cluster = Cluster(ClientConfig())
        connection.topics = (described("t", 1),)
        await cluster.refresh(["t"])
        connection.topics = (described("t", 1, error=3),)
        found = await cluster.refresh(["t"])
        assert cluster.last_known_topic("t") is None
        return found["t"]

    assert repr(asyncio.run(run())) == repr(UnknownTopicOrPartition("topic 't' does not exist"))


def test_addresses_of_brokers_that_are_gone_are_forgotten(connection: Connection) -> None:
    """A broker that names another port each time must not fill the memory of its clients."""

    async def run() -> int:
        cluster = Cluster(ClientConfig())
        for port in range(9_093, 9_193):
            connection.port = port
            await cluster.refresh([])
            await cluster.connection(1)
        return len(cluster._connections) + len(cluster._opening) + len(cluster._pauses)

    assert asyncio.run(run()) <= 9  # Three each for the bootstrap address and the last two.


def test_why_a_broker_cannot_be_reached_is_logged_once_and_so_is_its_return(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = Connection()
    made.peer = "127.0.0.1:9092"
    refusals = [NetworkException("broker 127.0.0.1:9092: refused")] * 3

    async def open_connection(*_: Any, **__: Any) -> Connection:
        if refusals:
            raise refusals.pop()
        return made

    monkeypatch.setattr(cluster_module, "open_connection", open_connection)

    async def connect() -> None:
        cluster = Cluster(ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=1))
        for _ in range(3):
            with pytest.raises(NetworkException):
                await cluster.any_connection()
        await cluster.any_connection()
        cluster.close()

    with caplog.at_level("INFO", logger="sharegroup.client"):
        asyncio.run(connect())
    assert caplog.messages == [
        'event=connection.failed error="broker 127.0.0.1:9092: refused"',
        "event=connection.restored broker=127.0.0.1:9092",
    ]
