"""What a client remembers of a cluster, which may name new things for ever."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import (
    Coordinator as FindCoordinatorCoordinator,
    FindCoordinatorResponse,
)
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from sharegroup.client.net import cluster as cluster_module
from sharegroup.client.net.cluster import COORDINATORS_MAX, Cluster, ConnectionPurpose, Topic
from sharegroup.client.net.connections import canonical_addresses
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import (
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    RebootstrapRequired,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId


def described(
    name: str, number: int, *, error: int = 0, leaders: tuple[int, ...] = (1,), epoch: int = -1
) -> MetadataResponseTopic:
    values: dict[str, Any] = {
        "error_code": error,
        "name": name,
        "topic_id": UUID(int=number),
        "partitions": tuple(led(index, leader, epoch) for index, leader in enumerate(leaders)),
    }
    return MetadataResponseTopic(**values)


def led(index: int, leader_id: int, epoch: int) -> MetadataResponsePartition:
    partition: dict[str, Any] = {
        "error_code": 0 if leader_id >= 0 else 5,
        "partition_index": index,
        "leader_id": leader_id,
        "leader_epoch": epoch,
        "replica_nodes": (1,),
        "isr_nodes": (1,),
        "offline_replicas": (),
    }
    return MetadataResponsePartition(**partition)


class Connection:
    """Answers with one topic after the other."""

    is_open = False

    def __init__(self) -> None:
        self.topics: tuple[MetadataResponseTopic, ...] = ()
        self.port = 9092
        self.node_id = 1
        self.peer = ""

    async def request(self, _: Any) -> MetadataResponse:
        broker: dict[str, Any] = {
            "node_id": self.node_id, "host": "127.0.0.1", "port": self.port,
        }  # fmt: skip
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

    async def open(self, *_: Any, **__: Any) -> Any:
        return self

    def cluster(self, config: ClientConfig | None = None, **clock: Callable[[], float]) -> Cluster:
        """A cluster of which every broker is this one."""
        return Cluster(config or ClientConfig(), connect=self.open, **clock)


@pytest.fixture
def connection() -> Connection:
    return Connection()


def test_only_the_newest_thousand_former_topic_ids_are_kept(connection: Connection) -> None:
    async def run() -> list[str | None]:
        cluster = connection.cluster()
        for number in range(1_007):
            connection.topics = (described("often made again", number), described("kept", 7_777))
            await cluster.refresh(["often made again", "kept"])
        return [cluster.name_of(TopicId(UUID(int=number))) for number in (*range(1_007), 7_777)]

    assert asyncio.run(run()) == [None] * 6 + ["often made again"] * 1_001 + ["kept"]


def test_topics_that_were_not_requested_are_not_kept(connection: Connection) -> None:
    async def run() -> None:
        cluster = connection.cluster()
        connection.topics = tuple(described(f"t{number}", number) for number in range(5))
        assert sorted(await cluster.refresh(["t3"])) == ["t0", "t1", "t2", "t3", "t4"]
        assert [cluster.last_known_topic(f"t{number}") is None for number in range(5)] == [
            True, True, True, False, True,
        ]  # fmt: skip
        assert len(await cluster.refresh(None)) == 5
        assert cluster.last_known_topic("t1") is None

    asyncio.run(run())


def test_more_topics_than_can_be_remembered_lose_those_not_used_lately(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer may write to a new topic for each request that it answers."""
    monkeypatch.setattr(cluster_module, "TOPICS_MAX", 3)
    now = 0.0

    async def run() -> None:
        nonlocal now
        cluster = connection.cluster(monotonic=lambda: now)

        async def use(name: str, number: int) -> None:
            connection.topics = (described(name, number),)
            await cluster.refresh([name])

        for number in range(5):
            await use(f"t{number}", number)
        assert cluster.last_known_topic("t0") is not None  # All of them are in use.
        now += 60
        await use("t0", 0)
        now += cluster.config.metadata_max_age_ms / 1000 - 30
        await use("t9", 9)
        kept = [name for name in "t0 t1 t2 t3 t4 t9".split() if cluster.last_known_topic(name)]
        assert kept == ["t0", "t4", "t9"]

    asyncio.run(run())


def test_deleted_topic_is_forgotten(connection: Connection) -> None:
    async def run() -> KafkaError | Any:
        cluster = connection.cluster()
        connection.topics = (described("t", 1),)
        await cluster.refresh(["t"])
        connection.topics = (described("t", 1, error=3),)
        found = await cluster.refresh(["t"])
        assert cluster.last_known_topic("t") is None
        return found["t"]

    assert repr(asyncio.run(run())) == repr(UnknownTopicOrPartition("topic 't' does not exist"))


def test_former_addresses_of_a_broker_are_forgotten(connection: Connection) -> None:
    """A broker that names another port each time must not fill the memory of its clients."""

    async def run() -> int:
        cluster = connection.cluster()
        for port in range(9_093, 9_193):
            connection.port = port
            await cluster.refresh([])
            await cluster.connection(1)
        connections = cluster._connections
        return sum(map(len, (connections._by_purpose, connections._opening, connections._pauses)))

    assert asyncio.run(run()) <= 9  # Three each for the bootstrap address and the last two.


def test_why_a_broker_cannot_be_reached_is_logged_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Connection()
    made.peer = "127.0.0.1:9092"
    refusals = [NetworkException("broker 127.0.0.1:9092: refused")] * 3

    async def open_connection(*_: Any, **__: Any) -> Connection:
        if refusals:
            raise refusals.pop()
        return made

    async def connect() -> None:
        config = ClientConfig(reconnect_backoff_ms=1, reconnect_backoff_max_ms=1)
        cluster = Cluster(config, connect=open_connection)
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


@pytest.mark.parametrize("asks_a_node", [True, False])
def test_a_call_that_is_shorter_than_an_attempt_to_connect_names_the_address(
    connection: Connection, *, asks_a_node: bool
) -> None:
    """For example, a firewall drops the packets to an address."""

    async def open_connection(address: tuple[str, int], *_: Any, **__: Any) -> Connection:
        if address[1] == 9_099 and asks_a_node:
            return connection
        await asyncio.Event().wait()
        raise AssertionError("cancelled before")

    async def ask() -> None:
        cluster = Cluster(ClientConfig(bootstrap_servers="127.0.0.1:9099"), connect=open_connection)

        async def attempt() -> None:
            await cluster.refresh([])
            await cluster.connection(1)

        await cluster.retrying(attempt, subject="a question", timeout_ms=20)

    with pytest.raises(RequestTimedOut) as failed:
        asyncio.run(ask())
    port = 9_092 if asks_a_node else 9_099
    assert f"last error: broker 127.0.0.1:{port}: no connection yet" in str(failed.value)
    assert ("advertised.listeners" in str(failed.value)) == asks_a_node


def test_topic_is_known_while_some_of_its_partitions_have_no_leader(
    connection: Connection,
) -> None:
    clock = SimpleNamespace(now=100.0)

    async def run() -> None:
        config = ClientConfig(retry_backoff_ms=100, retry_backoff_max_ms=100)
        cluster = connection.cluster(config, monotonic=lambda: clock.now)
        connection.topics = (described("t", 1, leaders=(1, -1, 1)),)
        await cluster.refresh(["t"])
        known = cluster.known_topic("t")
        assert known is not None
        assert known.leaders == (1, -1, 1)
        # It is asked again after a pause, until all have leaders.
        assert cluster.to_ask_again() == set()
        clock.now += 0.2
        assert cluster.to_ask_again() == {"t"}
        await cluster.refresh(["t"])
        assert cluster.to_ask_again() == set()
        clock.now += 0.2
        connection.topics = (described("t", 1, leaders=(1, 1, 1)),)
        await cluster.refresh(["t"])
        clock.now += 0.2
        assert cluster.to_ask_again() == set()

    asyncio.run(run())


def test_outdated_leader_makes_only_its_partition_leaderless(
    connection: Connection,
) -> None:
    async def run() -> None:
        cluster = connection.cluster()
        connection.topics = (described("t", 1, leaders=(1, 2)),)
        await cluster.refresh(["t"])
        cluster.outdate_leader(TopicPartition("t", 1), 1)  # It has another leader since.
        assert cluster.to_ask_again() == set()
        cluster.outdate_leader(TopicPartition("t", 1), 2)
        known = cluster.known_topic("t")
        assert known is not None
        assert known.leaders == (1, -1)
        assert cluster.to_ask_again() == {"t"}
        cluster.outdate_leader(TopicPartition("u", 0), 1)  # Nothing is known of it.

    asyncio.run(run())


@pytest.mark.parametrize(
    ("number", "epoch", "leader"),
    [(1, 6, 2), (1, 7, 3), (1, 8, 3), (1, -1, 3), (2, 0, 3)],
    ids=["earlier", "same", "later", "no epochs", "created anew"],
)
def test_leader_of_an_earlier_leader_epoch_is_ignored(
    connection: Connection, number: int, epoch: int, leader: int
) -> None:
    """A broker that is cut off from the controllers still reports itself as the leader."""

    async def run() -> None:
        cluster = connection.cluster()
        connection.topics = (described("t", 1, leaders=(2,), epoch=7),)
        await cluster.refresh(["t"])
        connection.topics = (described("t", number, leaders=(3,), epoch=epoch),)
        found = (await cluster.refresh(["t"]))["t"]
        assert isinstance(found, Topic)
        assert found == cluster.known_topic("t")
        assert found.leaders == (leader,)

    asyncio.run(run())


def test_leader_of_an_earlier_epoch_is_not_used_again_after_a_refusal(
    connection: Connection,
) -> None:
    async def run() -> None:
        cluster = connection.cluster()
        connection.topics = (described("t", 1, leaders=(2,), epoch=7),)
        await cluster.refresh(["t"])
        cluster.outdate_leader(TopicPartition("t", 0), 2)
        connection.topics = (described("t", 1, leaders=(3,), epoch=6),)
        await cluster.refresh(["t"])
        known = cluster.known_topic("t")
        assert known is not None
        assert known.leaders == (-1,)
        connection.topics = (described("t", 1, leaders=(1,), epoch=8),)
        await cluster.refresh(["t"])
        known = cluster.known_topic("t")
        assert known is not None
        assert known.leaders == (1,)

    asyncio.run(run())


def test_topic_without_partitions_and_without_an_error_is_asked_for_again(
    connection: Connection,
) -> None:
    """A producer divides by the number of partitions."""

    async def run() -> Topic:
        cluster = connection.cluster(ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=1))
        connection.topics = (described("t", 1, leaders=()),)
        assert isinstance((await cluster.refresh(["t"]))["t"], LeaderNotAvailable)
        assert cluster.last_known_topic("t") is None
        with pytest.raises(RequestTimedOut, match="topic 't' has no partitions yet"):
            await cluster.topic("t", timeout_ms=20)
        connection.topics = (described("t", 1),)
        return await cluster.topic("t")

    assert asyncio.run(run()).leaders == (1,)


def test_topic_without_partitions_yet_is_leader_not_available(connection: Connection) -> None:
    async def run() -> None:
        cluster = connection.cluster()
        connection.topics = (described("t", 1, error=5, leaders=()),)
        assert isinstance((await cluster.refresh(["t"]))["t"], LeaderNotAvailable)
        assert cluster.last_known_topic("t") is None

    asyncio.run(run())


class Brokers:
    """Three brokers; those in ``silent`` accept no connection."""

    def __init__(self) -> None:
        self.silent: set[int] = set()
        self.asked: list[int] = []
        self.error = 0
        """The error code of answers about metadata."""

    async def open(self, address: tuple[str, int], *_: Any, **__: Any) -> Any:
        port = address[1]
        if port in self.silent:
            raise RequestTimedOut(f"broker {port}: silent")

        async def request(message: Any) -> Any:
            self.asked.append(port)
            if isinstance(message, FindCoordinatorRequest):
                return self.coordinator_as_known_by(port)
            brokers: Any = (
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=9_090 + number)  # type: ignore[arg-type]
                for number in (1, 2, 3)
            )
            values: dict[str, Any] = {
                "throttle_time": None,
                "brokers": tuple(brokers),
                "cluster_id": "c",
                "controller_id": 1,
                "topics": (),
                "error_code": self.error,
            }
            return MetadataResponse(**values)

        return SimpleNamespace(is_open=True, request=request, close=lambda: None, peer=str(port))

    def coordinator_as_known_by(self, port: int) -> FindCoordinatorResponse:
        """Broker 1 is cut off from the others and believes that it is the coordinator."""
        node_id = 1 if port == 9_091 else 2
        coordinator: Any = FindCoordinatorCoordinator(
            key="g",
            node_id=node_id,  # type: ignore[arg-type]
            host="127.0.0.1",
            port=9_090 + node_id,  # type: ignore[arg-type]
            error_code=ErrorCode.none,
            error_message=None,
        )
        values: dict[str, Any] = {"throttle_time": None, "coordinators": (coordinator,)}
        return FindCoordinatorResponse(**values)


def test_only_the_newest_coordinators_are_remembered() -> None:
    """An admin client may describe any number of groups."""

    async def run() -> None:
        brokers = Brokers()
        cluster = Cluster(ClientConfig(bootstrap_servers="127.0.0.1:9092"), connect=brokers.open)
        for number in range(COORDINATORS_MAX + 7):
            await cluster.coordinator(f"g{number}")
        assert cluster.known_coordinator("g6") is None
        assert cluster.known_coordinator("g7") == 2
        asked = len(brokers.asked)
        await cluster.coordinator("g6")  # Found again when it is needed.
        assert len(brokers.asked) == asked + 1
        cluster.close()

    asyncio.run(run())


@pytest.mark.parametrize("metadata_between", [False, True])
@pytest.mark.parametrize("servers", ["1", "12", "123"])
def test_broker_that_is_cut_off_does_not_name_the_coordinator_for_ever(
    servers: str, metadata_between: bool
) -> None:
    """Whatever else is asked meanwhile, and although only it was ever connected to."""
    brokers = Brokers()

    async def run() -> set[int]:
        addresses = ",".join(f"127.0.0.1:909{number}" for number in servers)
        now = [0.0]
        config = ClientConfig(bootstrap_servers=addresses, retry_backoff_ms=1)
        cluster = Cluster(config, connect=brokers.open, monotonic=lambda: now[0])
        if metadata_between or servers == "1":
            await cluster.refresh(["t"])
        else:
            brokers.silent = {9_092, 9_093}
            for _ in range(2):  # The others are tried the second time at the latest.
                await cluster.coordinator("g")
                cluster.forget_coordinator("g")
            brokers.silent.clear()
            now[0] = 60.0  # From then on brokers that did not answer are tried again.
        named = set()
        for _ in range(6):
            named.add(await cluster.coordinator("g"))
            cluster.forget_coordinator("g")
            if metadata_between:
                await cluster.refresh(["t"])
        return named

    assert asyncio.run(run()) == {1, 2}


def test_consecutive_metadata_requests_go_to_different_brokers() -> None:
    """A single broker may lag behind the cluster or be cut off from it, and still answer."""
    brokers = Brokers()

    async def run() -> None:
        cluster = Cluster(ClientConfig(bootstrap_servers="127.0.0.1:9091"), connect=brokers.open)
        for _ in range(6):
            await cluster.refresh(["t"])

    asyncio.run(run())
    assert all(asked != following for asked, following in pairwise(brokers.asked))


def test_doubtful_broker_gets_no_metadata_requests_until_a_connection_succeeds() -> None:
    brokers = Brokers()

    async def run() -> None:
        config = ClientConfig(bootstrap_servers="127.0.0.1:9091", retry_backoff_ms=1)
        cluster = Cluster(config, connect=brokers.open)
        await cluster.refresh(["t"])
        cluster.doubt(2)
        for _ in range(6):
            await cluster.refresh(["t"])
        assert 9_092 not in brokers.asked
        assert cluster.is_doubtful(2)
        brokers.silent.add(9_093)
        with pytest.raises(RequestTimedOut):
            await cluster.connection(3, ConnectionPurpose.RECORDS)
        assert cluster.is_doubtful(3)
        brokers.silent.clear()
        for node_id in (2, 3):
            connection: Any = await cluster.connection(node_id, ConnectionPurpose.RECORDS)
            connection.is_open = False  # Cut since, which says nothing about the broker.
            assert not cluster.is_doubtful(node_id)

    asyncio.run(run())


@pytest.mark.parametrize(("strategy", "asked"), [("rebootstrap", 9_099), ("none", None)])
def test_bootstrap_servers_are_asked_again_unless_the_strategy_is_none(
    strategy: Any, asked: int | None
) -> None:
    brokers = Brokers()

    async def run() -> None:
        config = ClientConfig(
            bootstrap_servers="127.0.0.1:9099",
            metadata_recovery_strategy=strategy,
            reconnect_backoff_ms=1,
        )
        cluster = Cluster(config, connect=brokers.open)
        await cluster.refresh(["t"])
        brokers.asked.clear()
        brokers.silent = {9_091, 9_092, 9_093}
        if asked is None:
            with pytest.raises(NetworkException, match="no broker can be reached"):
                await cluster.any_connection()
        else:
            cluster._connections._by_purpose.clear()
            await cluster.refresh(["t"])
            assert brokers.asked == [asked]

    asyncio.run(run())


def test_a_broker_may_require_a_new_start_from_the_bootstrap_servers() -> None:
    """REBOOTSTRAP_REQUIRED (KIP-1102): the brokers of the last metadata are not asked again."""
    brokers = Brokers()

    async def run() -> None:
        config = ClientConfig(bootstrap_servers="127.0.0.1:9099", retry_backoff_ms=1)
        cluster = Cluster(config, connect=brokers.open)
        await cluster.refresh(["t"])
        brokers.error = 129
        with pytest.raises(NetworkException, match="requires a new start"):
            await cluster.refresh(["t"])
        brokers.asked.clear()
        with pytest.raises(RebootstrapRequired):  # The bootstrap server, too.
            await cluster.refresh(["t"])
        assert brokers.asked == [9_099]

    asyncio.run(run())


def test_bootstrap_servers_can_be_replaced_by_the_names_of_their_addresses() -> None:
    async def get_addresses(host: str, port: int, **_: Any) -> list[Any]:
        if host == "gone":
            raise OSError("unknown name")
        return [(2, 1, 6, "", (f"10.0.0.{number}", port)) for number in (1, 2)]

    async def get_name(address: tuple[str, int]) -> tuple[str, str]:
        return f"broker-{address[0][-1]}.example.org", "kafka"

    servers = [("kafka", 9_092), ("gone", 9_093)]
    found = asyncio.run(
        canonical_addresses(servers, get_addresses=get_addresses, get_name=get_name)
    )
    assert found == (
        ("broker-1.example.org", 9_092), ("broker-2.example.org", 9_092), ("gone", 9_093),
    )  # fmt: skip


def test_metrics_of_nodes_that_left_the_cluster_are_removed(connection: Connection) -> None:
    """A broker that names another node id each time must not fill the memory of its clients."""

    async def run() -> list[str]:
        cluster = connection.cluster()
        for node_id in range(1, 50):
            connection.node_id = node_id
            connection.port = 9_092 + node_id
            await cluster.refresh([])
            await cluster.connection(node_id)
        return sorted(group for group in cluster.metrics.read() if "node" in group)

    assert asyncio.run(run()) == [
        "admin-client-node-metrics/node--1",
        "admin-client-node-metrics/node-49",
    ]
