"""The connections that a Python worker of Spark keeps for its next task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sharegroup.client.net.cluster import Cluster
from sharegroup.errors import NetworkException
from sharegroup.spark import executor_fetch
from sharegroup.spark.executor_fetch import CLUSTERS_MAX, this_process
from sharegroup.spark.options import SourceOptions, stream_options


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    executor_fetch.close()
    yield
    executor_fetch.close()


def options_of(user: int) -> SourceOptions:
    """The options of one of many users; nothing listens at the address."""
    return stream_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.client.id": f"user{user}",
            "subscribe": "orders",
            "share.group": "any",
        }
    )


def used(user: int) -> Cluster:
    """The cluster of a task that has ended."""
    with this_process().cluster(options_of(user)) as cluster:
        return cluster


def test_tasks_with_the_same_options_use_the_same_cluster() -> None:
    assert used(1) is used(1)


def test_cluster_that_was_used_least_recently_is_closed() -> None:
    clusters = [used(user) for user in range(CLUSTERS_MAX)]
    assert used(0) is clusters[0]
    used(CLUSTERS_MAX)
    assert used(0) is clusters[0]
    assert used(1) is not clusters[1], "the oldest after the first, which was used again"
    with pytest.raises(NetworkException, match="closed"):
        asyncio.run(clusters[1].any_connection())


def test_cluster_that_a_task_uses_is_not_closed() -> None:
    with this_process().cluster(options_of(0)) as busy:
        for user in range(1, 3 * CLUSTERS_MAX):
            used(user)
        assert used(0) is busy
    for user in range(1, 3 * CLUSTERS_MAX):
        used(user)
    assert used(0) is not busy, "after its task it is closed like others"


def test_more_clusters_than_the_maximum_are_open_only_while_tasks_use_them() -> None:
    with (
        this_process().cluster(options_of(0)) as first,
        this_process().cluster(options_of(1)),
        this_process().cluster(options_of(2)),
    ):
        for user in range(3, 2 * CLUSTERS_MAX):
            used(user)
        assert used(0) is first
    assert len(this_process()._clusters) == CLUSTERS_MAX
