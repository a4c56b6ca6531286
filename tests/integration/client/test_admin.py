"""What an AdminClient makes of answers, on a broker in the same process or on Kafka."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    ConfigSource,
    GroupListing,
    GroupState,
    GroupType,
    ListedOffset,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    ResourceType,
    ShareConsumer,
    ShareGroupDescription,
    TopicPartition,
)
from sharegroup.client.admin.groups import by_group, delete_groups
from sharegroup.client.admin.offset_resets import ToEarliest, carry_out
from sharegroup.client.fetch.offsets import list_offsets
from sharegroup.client.net.cluster import ConnectionPurpose, CoordinatorType, Topic
from sharegroup.errors import (
    NONE,
    GroupIdNotFound,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    NotLeaderOrFollower,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicName
from sharegroup.testing import broker
from tests.integration.client.group_on_a_broker import stage
from tests.support.limits import HANGING_SECONDS

SECONDS_MAX = HANGING_SECONDS
"""Far below the api timeout of a minute: whoever tries again until then has failed."""


def play(scenario: Callable[[AdminClient], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with stage() as bootstrap, AdminClient(bootstrap_servers=bootstrap) as admin:
            async with asyncio.timeout(SECONDS_MAX):
                await scenario(admin)

    asyncio.run(run())


def test_configs_of_an_unknown_broker_fail_without_affecting_others() -> None:
    there, gone, nonsense = (ConfigResource(ResourceType.BROKER, name) for name in ("1", "7", "x"))

    async def scenario(admin: AdminClient) -> None:
        described = await admin.describe_configs([gone, there, nonsense])
        assert isinstance(described[there], dict)
        assert {resource: str(described[resource]) for resource in (gone, nonsense)} == {
            gone: "broker '7' is not in the cluster; its brokers are 1",
            nonsense: "broker 'x' is not in the cluster; its brokers are 1",
        }
        changed = await admin.incremental_alter_configs(
            {gone: [AlterConfig("log.segment.bytes", "1048576")]}
        )
        assert [type(error) for error in changed.values()] == [InvalidRequest]

    play(scenario)


def test_configs_can_be_asked_for_by_name() -> None:
    group = ConfigResource(ResourceType.GROUP, "billing")
    there = ConfigResource(ResourceType.BROKER, "1")

    async def scenario(admin: AdminClient) -> None:
        described = await admin.describe_configs([group], names=["share.session.timeout.ms"])
        assert {*described[group]} == {"share.session.timeout.ms"}
        assert await admin.describe_configs([there], names=["no.such.config"]) == {there: {}}

    play(scenario)


def test_configs_of_more_resources_than_a_broker_takes_in_a_request_are_described() -> None:
    topics = [ConfigResource(ResourceType.TOPIC, f"topic-{number:03}") for number in range(201)]

    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic.name) for topic in topics])
        described = await admin.describe_configs(topics, names=["cleanup.policy"])
        assert list(described) == topics
        assert {*map(repr, described.values())} == {repr(described[topics[0]])}
        assert described[topics[-1]]["cleanup.policy"].value == "delete"  # type: ignore[index]

    play(scenario)


@pytest.mark.parametrize(
    "verb",
    [
        "delete_topics",
        "describe_topics",
        "describe_share_groups",
        "delete_share_groups",
        "delete_groups",
        "describe_consumer_groups",
        "describe_groups",
    ],
)
def test_one_name_is_not_taken_for_a_list_of_letters(verb: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic("a"), NewTopic("ab")])
        with pytest.raises(TypeError, match="expected a list of names, got a single name: 'ab'"):
            await getattr(admin, verb)("ab")
        again = await admin.create_topics([NewTopic("a"), NewTopic("ab")])
        assert {name: type(error) for name, error in again.items()} == {
            "a": TopicAlreadyExists,
            "ab": TopicAlreadyExists,
        }, "both are still there"

    play(scenario)


def test_a_topic_that_exists_is_named_once() -> None:
    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic("orders", 1)])
        error = (await admin.create_topics([NewTopic("orders", 1)]))["orders"]
        assert type(error) is TopicAlreadyExists
        assert str(error).count("orders") == 1, str(error)

    play(scenario)


class MovedGroup:
    """A cluster whose group was coordinated by a node that is gone; now node 1 has it."""

    call = staticmethod(nullcontext)

    def __init__(self, gone: KafkaError) -> None:
        self.gone = gone
        self.known = 7

    async def coordinator(self, group_id: str, *, operation: str, kind: CoordinatorType) -> int:
        return self.known

    def forget_coordinator(self, group_id: str, *, kind: CoordinatorType) -> None:
        self.known = 1

    async def connection(
        self, node_id: int, purpose: ConnectionPurpose = ConnectionPurpose.CONTROL
    ) -> "MovedGroup":
        if node_id != 1:
            raise self.gone
        return self

    async def request(self, message: Any) -> Any:
        return SimpleNamespace(results=(SimpleNamespace(error_code=0),))

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], *, subject: str) -> Any:
        try:
            return await attempt()
        except KafkaError:
            return await attempt()


@pytest.mark.parametrize(
    "gone",
    [
        LeaderNotAvailable("node 7 is not among the brokers"),
        NetworkException("connection refused"),
        RequestTimedOut("no connection within 10000 ms"),
    ],
)
def test_unreachable_coordinator_is_looked_up_again(gone: KafkaError) -> None:
    cluster: Any = MovedGroup(gone)
    assert asyncio.run(delete_groups(cluster, ["g"])) == {"g": None}


class LateCoordinator:
    """A cluster of one node, which coordinates a group and hears late that a topic is new."""

    principal = None

    call = staticmethod(nullcontext)

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.asked: list[list[int]] = []

    async def coordinator(self, group_id: str, *, operation: str, kind: CoordinatorType) -> int:
        return 1

    async def connection(
        self, node_id: int, purpose: ConnectionPurpose = ConnectionPurpose.CONTROL
    ) -> "LateCoordinator":
        return self

    async def request(self, message: Any) -> Any:
        (topic,) = message.topics
        self.asked.append([partition.partition_index for partition in topic.partitions])
        late = self.codes.pop(0)
        partitions = tuple(
            SimpleNamespace(
                partition_index=index, error_code=late if index else NONE, error_message=None
            )
            for index in self.asked[-1]
        )
        answered = SimpleNamespace(topic_name="new", partitions=partitions)
        return SimpleNamespace(error_code=NONE, error_message=None, responses=(answered,))

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], *, subject: str) -> Any:
        while self.codes:
            with suppress(UnknownTopicOrPartition):
                return await attempt()
        raise RequestTimedOut(subject)


@pytest.mark.parametrize("learns", [True, False])
def test_unknown_partition_at_the_coordinator_is_retried(learns: bool) -> None:
    unknown = UnknownTopicOrPartition.code
    cluster = LateCoordinator(unknown, NONE if learns else unknown)
    asked: Any = cluster
    first, second = TopicPartition("new", 0), TopicPartition("new", 1)
    done = asyncio.run(carry_out(asked, "g", {first: 4, second: 5}, is_share=True))
    assert cluster.asked == [[0, 1], [1]]
    assert (done[first], type(done[second])) == (
        None,
        type(None) if learns else UnknownTopicOrPartition,
    )


class NewTopicsLeader:
    """A cluster of one node, which leads partition 0; of 1 it learns when it is asked again."""

    config = SimpleNamespace(request_timeout_ms=1_000)
    principal = None

    def __init__(self, *, learns: bool) -> None:
        self.codes = [NotLeaderOrFollower.code, NONE if learns else NotLeaderOrFollower.code]

    async def refresh(self, names: Any) -> dict[str, Topic]:
        return {name: Topic(TopicName(name), None, (1, 1)) for name in names}

    async def connection(self, node_id: int) -> "NewTopicsLeader":
        return self

    def outdate(self, topic: str) -> None:
        """It is asked anew each time."""

    async def request(self, message: Any) -> Any:
        partitions = tuple(
            SimpleNamespace(
                partition_index=index, error_code=code, offset=7, timestamp=-1, leader_epoch=-1
            )
            for index, code in enumerate((NONE, self.codes.pop(0)))
        )
        return SimpleNamespace(topics=(SimpleNamespace(name="new", partitions=partitions),))

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], *, subject: str) -> Any:
        while self.codes:
            with suppress(NotLeaderOrFollower):
                return await attempt()
        raise RequestTimedOut(subject)


@pytest.mark.parametrize(("learns", "second"), [(True, 7), (False, NotLeaderOrFollower)])
def test_leader_without_the_partition_yet_is_retried_without_affecting_others(
    learns: bool, second: Any
) -> None:
    """Kafka answers so about a topic that was just created."""
    cluster: Any = NewTopicsLeader(learns=learns)
    wanted = {TopicPartition("new", index): int(OffsetSpec.LATEST) for index in range(2)}
    listed = asyncio.run(list_offsets(cluster, wanted))
    found = [
        record.offset if isinstance(record, ListedOffset) else type(record)
        for record in listed.values()
    ]
    assert found == [7, second]


def test_error_of_one_group_hides_no_other() -> None:
    gone = NetworkException("node 1")

    async def ask(group_id: str) -> int:
        if group_id == "b":
            raise gone
        return len(group_id)

    assert asyncio.run(by_group(["a", "b", "ccc"], ask)) == {"a": 1, "b": gone, "ccc": 3}


def test_states_and_types_of_groups_are_members_of_enums_and_accepted_as_strings() -> None:
    async def scenario(admin: AdminClient) -> None:
        servers = admin._cluster.config.bootstrap_servers
        async with ShareConsumer("t", bootstrap_servers=servers, group_id="g") as consumer:
            await admin.create_topics([NewTopic("t", 1)])
            await consumer.poll(0.1)
            while not (listed := await admin.list_share_groups(states_filter=["Stable"])):
                await asyncio.sleep(0.01)  # `play` limits the time.
            assert listed == [GroupListing("g", GroupType.SHARE, "share", GroupState.STABLE)]
            assert listed[0].state is GroupState.STABLE
            assert listed[0].type is GroupType.SHARE
            by_member = await admin.list_groups(
                states_filter=[GroupState.STABLE], types_filter=[GroupType.SHARE]
            )
            assert by_member == listed
            described = (await admin.describe_share_groups(["g"]))["g"]
            assert isinstance(described, ShareGroupDescription)
            assert described.state is GroupState.STABLE
            assert described.state == "Stable"

    play(scenario)


def test_quota_may_be_a_whole_number() -> None:
    """The protocol has floating-point numbers; ``1_048_576`` of docs/quotas.md is none."""
    alice = QuotaEntity(user="alice")

    async def scenario(admin: AdminClient) -> None:
        changes: dict[str, float | None] = {"producer_byte_rate": 1_048_576}
        assert await admin.alter_client_quotas({alice: changes}) == {alice: None}
        await admin.alter_client_quotas({alice: {"producer_byte_rate": None}})

    play(scenario)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (GroupState.of("Stable"), GroupState.STABLE),
        (GroupState.of("STABLE"), GroupState.STABLE),
        (GroupState.of("Hibernating"), GroupState.UNKNOWN),
        (GroupState.of(""), GroupState.UNKNOWN),
        (GroupType.of("Share"), GroupType.SHARE),
        (GroupType.of("Quorum"), GroupType.UNKNOWN),
        (ConfigSource.of(8), ConfigSource.GROUP),
        (ConfigSource.of(99), ConfigSource.UNKNOWN),
    ],
)
def test_enum_value_of_a_newer_broker_is_unknown(
    found: GroupState | GroupType | ConfigSource, expected: object
) -> None:
    assert found is expected


def test_many_share_groups_are_asked_about_together_and_one_error_hides_no_other() -> None:
    async def run() -> None:
        names = [f"group-{number}" for number in range(45)]
        async with (
            broker() as there,
            AdminClient(bootstrap_servers=there.bootstrap_servers) as admin,
        ):
            await there.create_topic("orders")
            for name in names:
                await admin.reset_group_offsets(name, ToEarliest(), partitions=["orders"])

            def requests() -> float:
                return admin.metrics()["admin-client-metrics"]["request-total"]

            for _ in range(2):  # The first time the coordinator of `nobody` is looked for.
                before = requests()
                described = await admin.describe_share_groups([*names, "nobody"])
                offsets = await admin.list_share_group_offsets(dict.fromkeys(names))
            assert list(described) == [*names, "nobody"]
            assert isinstance(described.pop("nobody"), GroupIdNotFound)
            assert {group.state for group in described.values()} == {GroupState.EMPTY}
            where = TopicPartition("orders", 0)
            assert {name: found[where].start_offset for name, found in offsets.items()} == (
                dict.fromkeys(names, 0)
            )
            assert requests() - before <= 2 * 3 + 2

    asyncio.run(run())
