"""``SHAREGROUP_INTEROP=kafka`` plays the scenes of `group_on_a_broker` on a real Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.client import group_on_a_broker
from tests.integration.client.group_on_a_broker import POLL_SECONDS, Bench, play
from tests.support.chosen_broker import KAFKA, chosen, running


@pytest.fixture(scope="session", autouse=True)
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One node for all scenes; without it every scene makes a broker of ours."""
    if chosen() != KAFKA:
        yield
        return
    with running(KAFKA, tmp_path_factory.mktemp("client"), group_on_a_broker.SETTINGS) as there:
        group_on_a_broker.kafka.append(there.bootstrap_servers)
        play(once)
        yield
        group_on_a_broker.kafka.clear()


async def once(bench: Bench) -> None:
    """Poll: the first who does waits for seconds, while Kafka makes its topic of share states."""
    async with bench.member("implicit") as member:
        assert await member.poll(2 * POLL_SECONDS)
