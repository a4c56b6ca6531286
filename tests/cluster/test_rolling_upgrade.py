"""Apache Kafka 4.3 becomes 4.4, broker by broker, under load; then its features are raised.

`share.version` goes from 1 to 2 while the groups work: the new level changes what brokers write
about share groups.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sharegroup.client import AdminClient
from sharegroup.client.admin.types import FeatureUpdate
from tests.cluster.conftest import all_of_it
from tests.cluster.traffic import Traffic
from tests.support.kafka_cluster import KafkaCluster, why_missing

pytestmark = all_of_it

OLD, NEW = "4.3.1", "4.4.0"
RAISED = ("metadata.version", "share.version")
IDLE_SECONDS_MAX = 60.0


async def _finalized(cluster: KafkaCluster) -> dict[str, int]:
    async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return dict((await admin.describe_features()).finalized)


async def _raise_feature(cluster: KafkaCluster, name: str) -> int:
    """Raise a feature to the newest level that the brokers know, and return that."""
    async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        level = (await admin.describe_features()).supported[name].newest
        assert await admin.update_features({name: FeatureUpdate(level)}) == {name: None}

    async with asyncio.timeout(IDLE_SECONDS_MAX):
        while (await _finalized(cluster)).get(name) != level:
            pass
    return level


async def _replace(cluster: KafkaCluster, node: int) -> None:
    await asyncio.to_thread(cluster.stop, node)
    await asyncio.to_thread(cluster.start, node, version=NEW)
    await asyncio.to_thread(cluster.wait_until_whole)


def test_upgrade_under_load_loses_and_repeats_no_record(tmp_path: Path) -> None:
    missing = why_missing()
    if missing is not None:
        pytest.skip(missing)

    async def run(cluster: KafkaCluster) -> None:
        before = await _finalized(cluster)
        assert before["share.version"] == 1
        async with Traffic(cluster, "orders") as traffic:
            seconds = [await traffic.goes_on()]
            for node in cluster.nodes:
                await _replace(cluster, node)
                seconds.append(await traffic.goes_on())
            for name in RAISED:
                level = await _raise_feature(cluster, name)
                assert level > before[name], name
                seconds.append(await traffic.goes_on())
            account = await traffic.settled()
        print("goes on after", [round(span, 1) for span in seconds])
        assert not account.problems
        assert not account.refused
        assert max(account.pauses.values()) < IDLE_SECONDS_MAX

    with KafkaCluster(tmp_path, OLD) as cluster:
        asyncio.run(run(cluster))
