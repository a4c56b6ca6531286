"""The topics that a worker makes on three brokers: their replicas, and what is said of others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroup.client import AdminClient, ConfigResource, NewTopic, ResourceType
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.dead_letters.ledger import Ledger
from sharegroup.errors import InvalidReplicationFactor
from sharegroup.worker import App, DeadLetter, Retry
from sharegroup.worker.infrastructure import ChangeKind, apply, plan, prepare
from tests.cluster.conftest import all_of_it
from tests.support.kafka_cluster import KafkaCluster

MIN_INSYNC = "min.insync.replicas"


def application(cluster: KafkaCluster, group: str, **options: Any) -> App:
    app = App(group, bootstrap_servers=cluster.bootstrap_servers, **options.pop("app", {}))

    @app.share_group(group, topics=f"{group}.orders", **options)
    async def work(text: str) -> None:
        """Nothing is sent."""

    return app


async def replicas(admin: AdminClient, *names: str) -> dict[str, tuple[int, str | None]]:
    """By topic: its replication factor and its min ISR."""
    topics = await admin.describe_topics(names)
    found: dict[str, tuple[int, str | None]] = {}
    for name, topic in topics.items():
        assert isinstance(topic, TopicDescription), topic
        resource = ConfigResource(ResourceType.TOPIC, name)
        configs = (await admin.describe_configs([resource]))[resource]
        assert isinstance(configs, dict), configs
        factors = {len(partition.replicas) for partition in topic.partitions}
        assert len(factors) == 1, topic
        found[name] = (factors.pop(), configs[MIN_INSYNC].value)
    return found


@pytest.mark.slow
@all_of_it
def test_new_topics_have_three_replicas_also_while_a_broker_is_down(
    cluster: KafkaCluster,
) -> None:
    async def work() -> None:
        async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            app = application(
                cluster,
                "declaring",
                retry=Retry(replication_factor=2),
                dead_letter=DeadLetter(min_insync_replicas=1),
            )
            await prepare(app, admin)
            assert await replicas(
                admin, "declaring.orders", "declaring.retry", "declaring.retry.5s", "declaring.dead"
            ) == {
                "declaring.orders": (3, "2"),
                "declaring.retry": (2, "1"),
                "declaring.retry.5s": (2, "1"),
                "declaring.dead": (3, "1"),
            }
            assert await plan(app, admin) == []

            cluster.kill(3)
            cluster.wait_for(
                lambda: True if set(cluster.view().brokers) == {1, 2} else None, "a fenced broker"
            )
            await prepare(application(cluster, "starting"), admin)
            assert await replicas(admin, "starting.retry", "starting.dead") == {
                "starting.retry": (3, "2"),
                "starting.dead": (3, "2"),
            }

    asyncio.run(work())


@pytest.mark.slow
def test_topics_with_fewer_replicas_are_reported_and_not_changed(cluster: KafkaCluster) -> None:
    async def work() -> None:
        async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.create_topics(
                [
                    NewTopic("careless.orders", 1, 1),
                    NewTopic("careless.dead", 1, 1),
                    NewTopic("careless.retry", 2, 3, {MIN_INSYNC: "1"}),
                ]
            )
            app = application(cluster, "careless")
            await prepare(app, admin)
            found = [
                (str(change.kind), change.name, change.setting, change.now, change.wanted)
                for change in await plan(app, admin)
                if change.kind
                is not ChangeKind.DRIFT  # The retention of topics that were made by hand.
                and change.kind is not ChangeKind.MISSING
            ]
            assert found == [
                ("warning", "careless.dead", "replication_factor", "1", "3"),
                ("warning", "careless.retry", MIN_INSYNC, "1", "2"),
            ]

            declared = application(cluster, "careless", app={"min_insync_replicas": 2})
            await apply(admin, await plan(declared, admin))
            left = await plan(declared, admin)
            assert [(change.name, change.setting) for change in left] == [
                ("careless.dead", "replication_factor")
            ]
            assert await replicas(admin, "careless.retry", "careless.orders") == {
                "careless.retry": (3, "2"),
                "careless.orders": (1, "2"),  # Somebody else's, with the brokers' default.
            }

    asyncio.run(work())


@pytest.mark.slow
def test_more_replicas_than_brokers_end_the_start_before_any_topic_is_made(
    cluster: KafkaCluster,
) -> None:
    async def work() -> None:
        async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            app = application(cluster, "greedy", dead_letter=DeadLetter(replication_factor=5))
            with pytest.raises(InvalidReplicationFactor) as refused:
                await prepare(app, admin)
            assert "greedy.dead" in str(refused.value)
            assert "the cluster has 3 brokers" in str(refused.value)
            assert not [name for name in await admin.list_topics() if name.startswith("greedy")]

    asyncio.run(work())


@pytest.mark.slow
def test_the_ledger_of_a_redrive_has_as_many_replicas(cluster: KafkaCluster) -> None:
    async def work() -> None:
        async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            asking = Cluster(ClientConfig(bootstrap_servers=cluster.bootstrap_servers))
            try:
                await Ledger("noted.dead", "").create(asking)
                await Ledger("noted.dead", "").create(asking)
            finally:
                asking.close()
            cluster.wait_until_whole()
            assert await replicas(admin, "noted.dead.redriven") == {"noted.dead.redriven": (3, "2")}

    asyncio.run(work())


@pytest.mark.slow
def test_topics_of_a_worker_are_known_to_every_broker_when_it_starts(cluster: KafkaCluster) -> None:
    """The leader of a partition determines the start offset from the settings it knows."""

    async def work() -> None:
        async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            for number in range(10):
                group = f"known{number}"
                await prepare(application(cluster, group, retry=None, dead_letter=None), admin)
                resources = [
                    ConfigResource(ResourceType.GROUP, group),
                    ConfigResource(ResourceType.TOPIC, f"{group}.orders"),
                ]
                answers = await asyncio.gather(
                    *(admin.describe_configs(resources, node_id=node) for node in cluster.nodes)
                )
                for answer in answers:
                    of_group, of_topic = (answer[resource] for resource in resources)
                    assert isinstance(of_group, dict), of_group
                    assert of_group["share.auto.offset.reset"].value == "earliest"
                    assert isinstance(of_topic, dict), of_topic

    asyncio.run(work())
