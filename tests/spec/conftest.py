"""``SPEC_PEER=kafka`` holds the same statements against a real Apache Kafka.

What a test states is then Kafka's behaviour and not only ours; where the two differ on
purpose, the test names both outcomes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import count

import pytest
from kio.schema.find_coordinator.v6 import request as find_coordinator

from tests.spec.peer import Peer, start_kafka, start_ours
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for
from tests.support.kafka_peer import why_missing

KIND = os.environ.get("SPEC_PEER", "ours")
_numbers = count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ours_only(reason): cannot be asked of Apache Kafka")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with the mark ``ours_only`` name the reason; on Kafka they are skipped with it."""
    if KIND != "kafka":
        return
    for item in items:
        if mark := item.get_closest_marker("ours_only"):
            item.add_marker(pytest.mark.skip(reason=f"only on our broker: {mark.args[0]}"))


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("spec")
    if KIND == "kafka":
        if reason := why_missing():
            pytest.skip(reason)
        with start_kafka(folder) as kafka:
            make_internal_topics(kafka)
            yield kafka
    else:
        with start_ours(folder) as ours:
            yield ours


def make_internal_topics(peer: Peer) -> None:
    """Apache Kafka makes them when a coordinator is looked for, and takes its time."""
    request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=("warm-up",))
    with Scene(peer, "warm-up") as scene:
        wait_for(lambda: scene.ask(request).coordinators[0].error_code == 0, "a coordinator")
        member = scene.member("warm-up")
        topic = scene.topic()
        wait_for(lambda: member.heartbeat(topics=[topic.name]).error_code == 0, "a group")
        member.join(topic)
        wait_for(lambda: member.fetch().error == 0, "a share partition")


@pytest.fixture
def scene(peer: Peer, request: pytest.FixtureRequest) -> Iterator[Scene]:
    number = "-".join(re.findall(r"^test_([a-z]+)_(\d+)", request.node.name)[0])
    with Scene(peer, f"{number}.{next(_numbers)}") as scene:
        yield scene
