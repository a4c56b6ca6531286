"""One real cluster of three brokers for all tests of this folder; each leaves it whole.

`make test-slow` runs what is quick, where Java and Maven are; ``make interop-cluster`` runs
everything, and sets ``CLUSTER=all`` for that (`all_of_it`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.kafka_cluster import KafkaCluster, why_missing
from tests.support.kafka_peer import KAFKA_VERSION

_numbers = count(1)
VERSION = os.environ.get("CLUSTER_VERSION") or KAFKA_VERSION
all_of_it = pytest.mark.skipif(
    os.environ.get("CLUSTER") != "all", reason="slow; CLUSTER=all or make interop-cluster runs it"
)


SHORT_TIMES = {
    "broker.session.timeout.ms": "4000",
    # A coordinator that waits for a dead follower answers COORDINATOR_NOT_AVAILABLE after this
    # time and applies the change later.  It has to be well below the session of a broker.
    "offsets.commit.timeout.ms": "1000",
    # A broker waits for so long, by default 30 s, for a controller that is frozen.
    "controller.socket.timeout.ms": "3000",
    # What a coordinator could not tell a share coordinator it tries again after this time, by
    # default after 30 s; until then new members have no partitions.
    "group.share.initialize.retry.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
}


@pytest.fixture(scope="package")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers for this folder; idle, they take a sixth of a processor."""
    missing = why_missing()
    if missing is not None:
        pytest.skip(missing)
    with KafkaCluster(tmp_path_factory.mktemp("cluster"), VERSION, SHORT_TIMES) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """The folder's cluster; what a test broke is mended after it."""
    yield running_cluster
    running_cluster.mend()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; the topic is not created yet."""
    return f"{re.sub('[^a-z0-9]+', '-', request.node.name)[:80]}.{next(_numbers)}"
