"""A share consumer shows when it is idle: on a broker in the process."""

import asyncio

import pytest

from sharegroup.client import ShareConsumer
from tests.integration.client.group_on_a_broker import POLL_SECONDS, Bench, play
from tests.support.limits import HANGING_SECONDS


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="sharegroup.client.share.member.idleness")


def test_consumer_shows_partitions_and_idleness(caplog: pytest.LogCaptureFixture) -> None:
    """On a broker: idle while its topic does not exist, and no longer when it does."""

    async def scenario(bench: Bench) -> None:
        member = ShareConsumer(
            "later",
            bootstrap_servers=bench.bootstrap_servers,
            group_id=bench.group,
            share_acknowledgement_mode="explicit",
            fetch_max_wait_ms=10,
        )
        idleness = member._member.group.idleness
        idleness.idle_seconds, idleness.look_seconds = 0.02, 0.01
        async with member:
            assert await member.poll(0.2, 1) == []
            shown = member.metrics()["consumer-share-coordinator-metrics"]
            assert shown["assigned-partitions"] == 0
            assert shown["idle-seconds"] > 0
            assert [text.split()[0] for text in caplog.messages].count("event=member.idle") == 1
            await bench.create_topic("later")
            await bench.fill(b"v", topic="later")
            (record,) = await member.poll(POLL_SECONDS)
            record.accept()
            await member.poll(0.1)
            assert "event=member.resumed" in [text.split()[0] for text in caplog.messages]
            shown = member.metrics()["consumer-share-coordinator-metrics"]
            assert shown["assigned-partitions"] == 1

    play(scenario, group={"share_heartbeat_interval_ms": "100"})


@pytest.mark.parametrize("start_from", [None, "earliest"])
def test_member_that_reaches_no_broker_is_idle_for_this_reason(
    caplog: pytest.LogCaptureFixture, start_from: str | None
) -> None:
    """Also if it would set the start of its group first, which has a longer time limit."""

    async def run() -> None:
        member = ShareConsumer(
            "orders", bootstrap_servers="127.0.0.1:1", group_id="billing", start_from=start_from
        )
        idleness = member._member.group.idleness
        idleness.idle_seconds, idleness.look_seconds = 0.2, 0.05
        async with member, asyncio.timeout(HANGING_SECONDS):
            while not any("event=member.idle" in text for text in caplog.messages):
                assert await member.poll(0.1) == []
        [idle] = [text for text in caplog.messages if "event=member.idle" in text]
        assert "errors=[coordinator: NetworkException(" in idle
        assert "127.0.0.1:1" in idle

    asyncio.run(run())
