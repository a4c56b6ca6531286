"""Three controllers that are no brokers: clients go on while the quorum is broken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sharegroup.client import AdminClient, NewTopic
from sharegroup.errors import TopicAlreadyExists
from tests.cluster.asking import active_controller
from tests.cluster.conftest import VERSION, all_of_it
from tests.cluster.traffic import Traffic
from tests.support.kafka_cluster import KafkaCluster, why_missing

pytestmark = all_of_it


@pytest.fixture(scope="module")
def running_separate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    missing = why_missing()
    if missing is not None:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("separate")
    with KafkaCluster(folder, VERSION, separate_controllers=True, heap="300m") as cluster:
        yield cluster


@pytest.fixture
def separate(running_separate: KafkaCluster) -> KafkaCluster:
    """The same cluster for all tests, whole at the beginning of each."""
    running_separate.mend()
    return running_separate


async def _create_another(cluster: KafkaCluster, topic: str) -> None:
    """A topic can be created: a controller is active and the brokers hear of it.

    If the controller ended between its write and its answer, the client's next attempt is told
    that the topic exists.
    """
    async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (outcome,) = (await admin.create_topics([NewTopic(topic, 1, 2)])).values()
        assert outcome is None or isinstance(outcome, TopicAlreadyExists)


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_active_controller_that_ends_or_hangs_stops_no_client(
    separate: KafkaCluster, fault: str
) -> None:
    cluster = separate

    async def run() -> None:
        async with Traffic(cluster, f"controller-{fault}") as traffic:
            await traffic.goes_on()
            active = await asyncio.to_thread(active_controller, cluster)
            assert active in cluster.controllers
            await asyncio.to_thread(getattr(cluster, fault), active)
            seconds = [await traffic.goes_on()]
            await asyncio.to_thread(
                cluster.wait_for,
                lambda: True if active_controller(cluster) != active else None,
                "another active controller",
            )
            await _create_another(cluster, f"after-{fault}")
            seconds.append(await traffic.goes_on())
            await asyncio.to_thread(cluster.mend)
            seconds.append(await traffic.goes_on())
            account = await traffic.settled()
        print(fault, "goes on after", [round(span, 1) for span in seconds])
        assert not account.problems
        assert not account.refused

    asyncio.run(run())


@pytest.mark.parametrize("role", ["leader", "coordinator"])
def test_clients_leave_a_broker_that_controllers_cannot_reach(
    separate: KafkaCluster, role: str
) -> None:
    """It is fenced and its partitions have other leaders, but brokers and clients still reach it.

    Its metadata are outdated and still name itself as the leader.
    """
    cluster = separate

    async def run() -> None:
        topic = f"isolated-{role}"
        async with Traffic(cluster, topic) as traffic:
            await traffic.goes_on()
            if role == "leader":
                isolated = await asyncio.to_thread(cluster.leader_of, topic, 0)
            else:
                isolated = await asyncio.to_thread(cluster.coordinator_of, traffic.group)
            await asyncio.to_thread(cluster.isolate, isolated, *cluster.controllers)
            await asyncio.to_thread(
                cluster.wait_for,
                lambda: True if isolated not in cluster.view().brokers else None,
                "a fenced broker",
            )
            assert isolated in cluster.view(isolated).brokers
            seconds = [await traffic.goes_on()]
            await asyncio.to_thread(cluster.mend)
            seconds.append(await traffic.goes_on())
            account = await traffic.settled()
        print(f"isolated {role}: goes on after", [round(span, 1) for span in seconds])
        assert not account.problems
        assert not account.refused

    asyncio.run(run())
