"""Workers read committed records, so aborted copies of a job never reach a handler."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, Producer
from sharegroup.client.admin.types import ConfigResource
from sharegroup.errors import InvalidConfig, KafkaError, ProducerFenced
from sharegroup.jobs.job_run import transactional_id
from sharegroup.protocol_enums import ResourceType
from sharegroup.worker import App, DeadLetter
from sharegroup.worker.infrastructure import apply, plan
from tests.integration.worker.collecting import on_a_loop
from tests.integration.worker.dead import make_topics, set_group
from tests.support.limits import HANGING_SECONDS

LEVEL = "share.isolation.level"


def app_of(bootstrap: str, group: str, topic: str) -> tuple[App, asyncio.Queue[bytes]]:
    app = App("isolated", bootstrap_servers=bootstrap, grace="5s")
    handled: asyncio.Queue[bytes] = asyncio.Queue()

    @app.share_group(group, topics=topic, dead_letter=DeadLetter())
    async def bill(value: bytes) -> None:
        handled.put_nowait(value)

    return app, handled


async def level_of(bootstrap: str, group: str) -> str | None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        resource = ConfigResource(ResourceType.GROUP, group)
        configs = (await admin.describe_configs([resource]))[resource]
    assert not isinstance(configs, KafkaError)
    return configs[LEVEL].value


def writer(bootstrap: str, group: str) -> Producer:
    return Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id(group))


@on_a_loop
async def test_aborted_copies_of_a_fenced_runner_reach_no_handler(
    bootstrap: str, group: str, topic: str
) -> None:
    """The first runner is fenced with copies in its transaction; the second commits its own."""
    await make_topics(bootstrap, topic)
    app, handled = app_of(bootstrap, group, topic)
    async with app:
        assert await level_of(bootstrap, group) == "read_committed"
        async with writer(bootstrap, group) as first, writer(bootstrap, group) as second:
            await first.begin_transaction()
            for value in (b"aborted-1", b"aborted-2"):
                await first.send_and_wait(f"{group}.retry", value, partition=0)
            async with second.transaction():
                await second.send_and_wait(f"{group}.retry", b"committed", partition=0)
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
            async with second.transaction():
                await second.send_and_wait(f"{group}.retry", b"last", partition=0)
        async with asyncio.timeout(HANGING_SECONDS):
            assert [await handled.get(), await handled.get()] == [b"committed", b"last"]
    assert handled.empty()


@on_a_loop
async def test_worker_refuses_a_group_that_reads_uncommitted_until_apply(
    bootstrap: str, group: str, topic: str
) -> None:
    await make_topics(bootstrap, topic)
    await set_group(bootstrap, group, share_isolation_level="read_uncommitted")
    app, _ = app_of(bootstrap, group, topic)
    command = f"sharegroup configs alter --group {group} --set {LEVEL}=read_committed"
    with pytest.raises(InvalidConfig, match=command):
        await app.start()
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        planned = await plan(app, admin)
        assert (LEVEL, "read_uncommitted", "read_committed") in [
            (change.setting, change.now, change.wanted) for change in planned
        ]
        assert {error for _, error in await apply(admin, planned)} == {None}
    async with app:
        assert await level_of(bootstrap, group) == "read_committed"


@on_a_loop
async def test_declared_read_uncommitted_is_refused(bootstrap: str, group: str, topic: str) -> None:
    await make_topics(bootstrap, topic)
    app = App("isolated", bootstrap_servers=bootstrap)

    @app.share_group(group, topics=topic, group_configs={LEVEL: "read_uncommitted"})
    async def bill(value: bytes) -> None: ...

    with pytest.raises(InvalidConfig, match="expected read_committed or none"):
        await app.start()
