"""AdminClient on our broker, on Apache Kafka, and on what only Apache Kafka has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from confluent_kafka import Consumer

from sharegroup.client import (
    AdminClient,
    ByDuration,
    CommittedOffset,
    ConsumerGroupDescription,
    FeatureUpdate,
    FromPlan,
    NewTopic,
    OffsetChange,
    Producer,
    QuotaEntity,
    QuotaName,
    ShareConsumer,
    SharePartitionOffset,
    ShiftBy,
    ToCurrent,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    TopicDescription,
    TopicPartition,
    new_offsets,
)
from sharegroup.errors import (
    GroupIdNotFound,
    InvalidRequest,
    InvalidUpdateVersion,
    NonEmptyGroup,
    ThrottlingQuotaExceeded,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.kafka_peer import KafkaPeer, why_missing
from tests.support.limits import HANGING_SECONDS

T = TypeVar("T")
on_kafka = [
    LONG_WITH_A_JVM,
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=why_missing() or ""),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    with KafkaPeer(tmp_path_factory.mktemp("kafka"), heap="512m") as peer:
        yield peer


def administer(bootstrap: str, scenario: Callable[[AdminClient], Awaitable[T]]) -> T:
    async def run() -> T:
        async with (
            asyncio.timeout(HANGING_SECONDS),
            AdminClient(bootstrap_servers=bootstrap) as admin,
        ):
            return await scenario(admin)

    return asyncio.run(run())


async def until(ask: Callable[[], Awaitable[T]], expected: T) -> None:
    """Ask until this is the answer: brokers apply quotas a little later than they accept them."""
    async with asyncio.timeout(HANGING_SECONDS):
        while await ask() != expected:
            await asyncio.sleep(0.01)


async def ten_records(bootstrap: str, admin: AdminClient, topic: str) -> None:
    """A topic of two partitions; the first has ten records, a minute apart since 1,000,000 s."""
    assert await admin.create_topics([NewTopic(topic, 2)]) == {topic: None}
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            stamp = (1_000_000 + 60 * number) * 1000
            await producer.send(topic, b"v", partition=0, timestamp_ms=stamp)


def test_reset_finds_the_offset_of_every_scenario(bootstrap: str, topic: str, group: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def scenario(admin: AdminClient) -> None:
        await ten_records(bootstrap, admin, topic)
        moved = await admin.reset_group_offsets(group, ToOffset(4), partitions=[first])
        assert moved == {first: OffsetChange(None, 4)}
        moment = datetime.fromtimestamp(1_000_000 + 60 * 6 - 1, UTC)
        long_ago = timedelta(seconds=time.time() - 1_000_000 - 60 * 2.5)
        for to, expected in (
            (ToEarliest(), 0),
            (ToLatest(), 10),
            (ToCurrent(), 4),
            (ToOffset(7), 7),
            (ToOffset(99), 10),
            (ToDatetime(moment), 6),
            (ToDatetime(datetime(2020, 1, 1, tzinfo=UTC)), 10),
            (ByDuration(long_ago), 3),
            (ShiftBy(3), 7),
            (ShiftBy(-9), 0),
            (FromPlan({first: 5}), 5),
        ):
            plan = await admin.reset_group_offsets(group, to, partitions=[first], dry_run=True)
            assert plan == {first: OffsetChange(4, expected)}, to
        listed = await admin.list_share_group_offsets({group: [first, second]})
        assert isinstance(offsets := listed[group], dict)
        assert isinstance(unmoved := offsets[first], SharePartitionOffset)
        assert unmoved.start_offset == 4

    administer(bootstrap, scenario)


def test_plan_of_a_dry_run_can_be_executed(bootstrap: str, topic: str, group: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def scenario(admin: AdminClient) -> None:
        await ten_records(bootstrap, admin, topic)
        plan = await admin.reset_group_offsets(group, ToLatest(), partitions=[topic], dry_run=True)
        assert plan == {first: OffsetChange(None, 10), second: OffsetChange(None, 0)}
        done = await admin.reset_group_offsets(group, FromPlan(new_offsets(plan)))
        assert done == plan
        again = await admin.reset_group_offsets(group, ToEarliest())
        assert again == {first: OffsetChange(10, 0), second: OffsetChange(0, 0)}

    administer(bootstrap, scenario)


def test_reset_errors_name_the_partition(bootstrap: str, topic: str, group: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def scenario(admin: AdminClient) -> None:
        await ten_records(bootstrap, admin, topic)
        with pytest.raises(UnknownTopicOrPartition, match=r"partitions 0 to 1; asked for 2"):
            await admin.reset_group_offsets(
                group, ToEarliest(), partitions=[TopicPartition(topic, 2)]
            )
        with pytest.raises(UnknownTopicOrPartition, match="'no-such-topic' does not exist"):
            await admin.reset_group_offsets(group, ToEarliest(), partitions=["no-such-topic"])
        await admin.reset_group_offsets(group, ToEarliest(), partitions=[first])
        shifted = await admin.reset_group_offsets(group, ShiftBy(1), partitions=[topic])
        assert shifted[first] == OffsetChange(0, 1)
        assert isinstance(refusal := shifted[second], InvalidRequest)
        assert "partition 1: the group has not started; nothing to shift by 1" in str(refusal)

    administer(bootstrap, scenario)


def test_reset_of_a_group_with_members_names_them(bootstrap: str, topic: str, group: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic, 1)])
        async with ShareConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, client_id="worker-7"
        ) as consumer:
            await consumer.poll(timeout=0.1)
            while not (await admin.list_share_groups(states_filter=["Stable"])):
                await consumer.poll(timeout=0.1)
            with pytest.raises(NonEmptyGroup, match=r"stop them first: 'worker-7' \("):
                await admin.reset_group_offsets(group, ToEarliest(), dry_run=True)

    administer(bootstrap, scenario)


def test_share_groups_are_deleted_each_with_its_result(
    bootstrap: str, topic: str, group: str
) -> None:
    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic, 1)])
        await admin.reset_group_offsets(group, ToEarliest(), partitions=[topic])
        results = await admin.delete_share_groups(["no-such-group", group])
        assert list(results) == ["no-such-group", group]
        assert isinstance(results["no-such-group"], GroupIdNotFound)
        assert results[group] is None

    administer(bootstrap, scenario)


def test_topic_is_described_with_its_replicas(bootstrap: str, topic: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic, 2)])
        described = (await admin.describe_topics([topic]))[topic]
        assert isinstance(described, TopicDescription)
        node = described.leaders[0]
        assert [
            (
                partition.partition,
                partition.leader,
                partition.replicas,
                partition.in_sync_replicas,
                partition.offline_replicas,
            )
            for partition in described.partitions
        ] == [(0, node, (node,), (node,), ()), (1, node, (node,), (node,), ())]

    administer(bootstrap, scenario)


def test_features_include_share_groups(bootstrap: str) -> None:
    features = administer(bootstrap, AdminClient.describe_features)
    assert features.finalized["share.version"] >= 1
    assert features.supported["share.version"].newest >= features.finalized["share.version"]
    assert features.finalized_epoch is not None


def test_one_broker_is_asked_for_its_features_and_requests(bootstrap: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        (node,) = (await admin.describe_cluster()).nodes
        assert await admin.describe_features(node.node_id) == await admin.describe_features()
        served = await admin.describe_api_versions(node.node_id)
        assert served == await admin.describe_api_versions()
        with pytest.raises(InvalidRequest, match="broker 77 is not in the cluster; its brokers"):
            await admin.describe_features(77)

    administer(bootstrap, scenario)


@pytest.mark.parametrize(
    ("where_to", "protocol"),
    [
        ("bootstrap", "classic"),
        pytest.param("kafka", "classic", marks=on_kafka),
        pytest.param("kafka", "consumer", marks=on_kafka),
    ],
)
def test_consumer_group_is_described_and_moved(
    request: pytest.FixtureRequest, where_to: str, protocol: str
) -> None:
    found = request.getfixturevalue(where_to)
    bootstrap: str = found if isinstance(found, str) else found.bootstrap_servers
    topic, group = f"read-{protocol}", f"readers-{protocol}"
    where = TopicPartition(topic, 0)

    async def make(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic, 1)])

    administer(bootstrap, make)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
        }
    )
    consumer.subscribe([topic])
    limit = time.monotonic() + HANGING_SECONDS
    while not consumer.assignment():
        assert time.monotonic() < limit, "the consumer got no partition"
        consumer.poll(0.1)

    async def described(admin: AdminClient) -> ConsumerGroupDescription:
        found = (await admin.describe_consumer_groups([group]))[group]
        assert isinstance(found, ConsumerGroupDescription)
        refused = (await admin.alter_consumer_group_offsets(group, {where: 3}))[where]
        assert isinstance(refused, UnknownMemberId)
        return found

    group_now = administer(bootstrap, described)
    consumer.close()
    assert (group_now.group_id, group_now.type, group_now.protocol_type, group_now.state) == (
        group, protocol, "consumer", "Stable",
    )  # fmt: skip
    (member,) = group_now.members
    assert (member.client_id, member.assignment) == ("reader", (where,))

    async def moved(admin: AdminClient) -> None:
        listed = await admin.list_groups(types_filter=[protocol])
        assert [listing.state for listing in listed if listing.group_id == group] == ["Empty"]
        # A share group's own delete leaves it alone.
        left = await admin.delete_share_groups([group])
        assert isinstance(left[group], GroupIdNotFound)
        assert await admin.alter_consumer_group_offsets(group, {where: 3}) == {where: None}
        offsets = await admin.list_consumer_group_offsets({group: None})
        assert offsets == {group: {where: CommittedOffset(3, None, "")}}
        assert await admin.delete_consumer_group_offsets(group, [where]) == {where: None}
        offsets = await admin.list_consumer_group_offsets({group: [where]})
        assert offsets == {group: {where: CommittedOffset(None, None, "")}}
        assert await admin.delete_groups([group]) == {group: None}
        gone = await admin.describe_consumer_groups([group])
        assert isinstance(gone[group], GroupIdNotFound)

    administer(bootstrap, moved)


def test_quotas_are_set_listed_and_removed(bootstrap: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        user = QuotaEntity(user="quota-user")
        both = QuotaEntity(user="quota-user", client_id=QuotaName.DEFAULT)
        changes = {user: {"producer_byte_rate": 1024.0}, both: {"request_percentage": 12.5}}
        assert await admin.alter_client_quotas(changes, validate_only=True) == {
            user: None, both: None,
        }  # fmt: skip
        assert await admin.alter_client_quotas(changes) == {user: None, both: None}
        await until(lambda: admin.describe_client_quotas(user="quota-user"), changes)
        found = await admin.describe_client_quotas(user="quota-user", strict=True)
        assert found == {user: {"producer_byte_rate": 1024.0}}
        found = await admin.describe_client_quotas(user="quota-user", client_id=QuotaName.DEFAULT)
        assert found == {both: {"request_percentage": 12.5}}
        assert await admin.describe_client_quotas(ip=QuotaName.ANY) == {}
        wrong = await admin.alter_client_quotas({user: {"bananas": 1.0}})
        assert isinstance(wrong[user], InvalidRequest)
        removed = {user: {"producer_byte_rate": None}, both: {"request_percentage": None}}
        assert await admin.alter_client_quotas(removed) == {user: None, both: None}
        nothing: dict[QuotaEntity, dict[str, float]] = {}
        await until(lambda: admin.describe_client_quotas(user="quota-user"), nothing)

    administer(bootstrap, scenario)


def test_changes_above_the_quota_are_made_when_it_allows_them(bootstrap: str) -> None:
    """The quota allows 11 partitions at once; after 13, the next ones are two seconds later."""

    async def scenario(admin: AdminClient) -> None:
        entity = QuotaEntity(client_id="changer")
        limits = {"controller_mutation_rate": 1.0}
        assert await admin.alter_client_quotas({entity: limits}) == {entity: None}
        await until(lambda: admin.describe_client_quotas(client_id="changer"), {entity: limits})
        names = [f"throttled-{number}" for number in range(2)]
        async with AdminClient(bootstrap_servers=bootstrap, client_id="changer") as changer:
            began = time.monotonic()
            topics = [NewTopic(names[0], 13), NewTopic(names[1], 1)]
            assert await changer.create_topics(topics) == {names[0]: None, names[1]: None}
            assert time.monotonic() - began > 1.5
            refused = await changer.create_topics([NewTopic("throttled-2", 20)], timeout=0.5)
            assert isinstance(refused["throttled-2"], ThrottlingQuotaExceeded)
        removed: dict[str, float | None] = {"controller_mutation_rate": None}
        assert await admin.alter_client_quotas({entity: removed}) == {entity: None}
        assert await admin.delete_topics(names) == dict.fromkeys(names)

    administer(bootstrap, scenario)


class TestOnKafka:
    """What our broker does not serve."""

    pytestmark = on_kafka

    def test_feature_that_cannot_have_a_level_is_refused(self, kafka: KafkaPeer) -> None:
        async def scenario(admin: AdminClient) -> None:
            now = (await admin.describe_features()).finalized["share.version"]
            results = await admin.update_features({"share.version": FeatureUpdate(77)})
            assert isinstance(results["share.version"], InvalidUpdateVersion)
            same = {"share.version": FeatureUpdate(now)}
            assert await admin.update_features(same, validate_only=True) == {"share.version": None}

        administer(kafka.bootstrap_servers, scenario)
