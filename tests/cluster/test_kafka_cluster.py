"""The cluster that the other tests break: its faults are what they say."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

from sharegroup.client import AdminClient, NewTopic
from tests.cluster.conftest import all_of_it
from tests.support.cluster_security import Security
from tests.support.kafka_cluster import KafkaCluster, why_missing

SECONDS_MAX = 60.0


async def _create(topic: str, **options: Any) -> None:
    async with AdminClient(**options) as admin:
        assert await admin.create_topics([NewTopic(topic, num_partitions=3)]) == {topic: None}


async def _listed(**options: Any) -> list[str]:
    async with AdminClient(**options) as admin:
        return await admin.list_topics()


@pytest.mark.slow
def test_replicas_and_coordinators_are_on_the_brokers(cluster: KafkaCluster) -> None:
    asyncio.run(_create("spread", bootstrap_servers=cluster.bootstrap_servers))
    cluster.wait_until_whole()
    view = cluster.view()
    assert {partition.leader for partition in view.topics["spread"].values()} == {1, 2, 3}
    assert all(len(partition.replicas) == 3 for partition in view.topics["spread"].values())
    assert cluster.leader_of("spread", 0) == view.topics["spread"][0].leader
    assert cluster.coordinator_of("a-group") in cluster.nodes
    assert cluster.share_coordinator_of("a-group", view.topic_ids["spread"], 0) in cluster.nodes


@pytest.mark.slow
@all_of_it
def test_killed_coordinator_is_followed_by_another_broker(cluster: KafkaCluster) -> None:
    killed = cluster.coordinator_of("some")
    cluster.kill(killed)
    assert not cluster.is_running(killed)
    cluster.wait_for(
        lambda: True if cluster.coordinator_of("some") != killed else None, "another coordinator"
    )


@pytest.mark.slow
@all_of_it
def test_isolated_broker_is_out_of_sync_and_serves_clients(cluster: KafkaCluster) -> None:
    """The others continue without it, and its own metadata still list the former cluster."""
    isolated = cluster.coordinator_of("some")
    cluster.isolate(isolated)
    others = set(cluster.nodes) - {isolated}
    cluster.wait_for(
        lambda: True if set(cluster.view().brokers) == others else None, "an expired session"
    )
    lagging = cluster.view(isolated)
    assert set(lagging.brokers) == set(cluster.nodes)
    cluster.heal()
    cluster.wait_until_whole()


@pytest.mark.slow
@all_of_it
def test_cluster_ends_with_its_process(tmp_path: Path) -> None:
    """kill -9 of the process that started it leaves no broker behind."""
    missing = why_missing()
    if missing is not None:
        pytest.skip(missing)
    program = f"""
        from pathlib import Path
        from tests.support.kafka_cluster import KafkaCluster
        from tests.support.kafka_peer import KafkaNode
        KafkaNode.wait_until_open = lambda node: None
        cluster = KafkaCluster(Path({str(tmp_path)!r}))
        cluster._make_internal_topics = cluster.wait_until_whole = lambda: None
        with cluster:
            print(*(cluster.pid_of(node) for node in cluster.nodes), flush=True)
            input()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "."},
    ) as process:
        assert process.stdout is not None
        nodes = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        process.kill()
        assert len(nodes) == 3
        _, alive = psutil.wait_procs(nodes, timeout=SECONDS_MAX)
        assert not alive


@pytest.mark.slow
@all_of_it
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_secure_cluster_with_separate_controllers(tmp_path: Path, mechanism: str) -> None:
    """Users log in, and may do nothing until an ACL permits it."""
    security = Security(users={"billing": "its-secret"}, mechanism=mechanism)
    with KafkaCluster(tmp_path, security=security, separate_controllers=True) as cluster:
        assert cluster.controllers == (11, 12, 13)
        address: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
        asyncio.run(_create("orders", **address, **security.client_options()))
        assert asyncio.run(_listed(**address, **security.client_options("billing"))) == []
