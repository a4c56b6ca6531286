"""Workers announce themselves on a real broker, and commands reach them over the cluster."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sharegroup.client import AclBinding, AclOperation, AclResourceType, AdminClient, Producer
from sharegroup.errors import InvalidConfig
from sharegroup.fleet.commands import Intent, Target, TargetKind
from sharegroup.fleet.fleet import Fleet, Outcome
from sharegroup.testing import Security, broker
from sharegroup.worker import App, RateLimit
from sharegroup.worker.infrastructure import apply, plan
from tests.integration.worker.test_steering import running, until


def app_of(bootstrap: str, group: str, topic: str, *, prepare: bool = True) -> App:
    app = App(group, bootstrap_servers=bootstrap, announce=True, prepare=prepare, grace="2s")

    @app.share_group(group, topics=topic, retry=None, dead_letter=None)
    async def work(value: bytes) -> None: ...

    return app


async def heard(fleet: Fleet, phases: list[str]) -> None:
    async def are_there() -> bool:
        return [seen.beat.phase for seen in (await fleet.workers()).listed()] == phases

    await until(are_there, f"workers that are {phases}")


def test_worker_is_quieted_resumed_and_stopped_over_the_cluster(
    bootstrap: str, group: str, topic: str
) -> None:
    app = app_of(bootstrap, group, topic)

    async def scene() -> None:
        async with running(app), Fleet(group, bootstrap_servers=bootstrap) as fleet:
            await heard(fleet, ["running"])
            [seen] = (await fleet.workers()).listed()
            who = seen.identity
            assert (who.app, who.groups, who.group_count) == (group, (group,), 1)
            for intent, phase in ((Intent.QUIET, "quiet"), (Intent.RESUME, "running")):
                target = Target(TargetKind.WORKER, who.worker_id)
                [steered] = await fleet.steer(intent, target, by="anna", wait_seconds=30)
                assert (steered.outcome, steered.worker.beat.phase) == (Outcome.DONE, phase)
            nobody = Target(TargetKind.HOST, "elsewhere")
            assert await fleet.steer(Intent.STOP, nobody, by="anna", wait_seconds=30) == []
            [steered] = await fleet.steer(Intent.STOP, by="anna", wait_seconds=30)
            assert steered.outcome is Outcome.DONE
            await until(lambda: app.worker is None, "the stop of the worker")
            assert (await fleet.workers()).listed() == []

    asyncio.run(scene())


def test_worker_without_its_topics_runs_and_says_so_once(
    bootstrap: str, group: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(bootstrap, group, topic, prepare=False)

    async def scene() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            fleet_topics = {f"{group}.workers", f"{group}.control"}
            changes = [
                change for change in await plan(app, admin) if change.name not in fleet_topics
            ]
            await apply(admin, changes)
            with caplog.at_level(logging.WARNING):
                async with running(app), Fleet(group, bootstrap_servers=bootstrap) as fleet:
                    await until(lambda: "event=announce.off" in caplog.text, "the warning")
                    with pytest.raises(InvalidConfig, match=r"no topic .*\.workers'"):
                        await fleet.workers()
            assert f"topic '{group}.workers' does not exist" in caplog.text
            assert not fleet_topics & {*await admin.list_topics()}

    asyncio.run(scene())


def test_plan_names_the_topics_and_check_finds_nothing_after_apply(
    bootstrap: str, group: str, topic: str
) -> None:
    app = app_of(bootstrap, group, topic)

    async def scene() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            planned = await plan(app, admin)
            whys = {change.name: change.why for change in planned if change.resource == "topic"}
            assert "workers announce themselves" in whys[f"{group}.workers"]
            assert "workers announce themselves" in whys[f"{group}.control"]
            assert [error for _, error in await apply(admin, planned) if error] == []
            assert [change for change in await plan(app, admin) if change.kind == "missing"] == []

    asyncio.run(scene())


def test_foreign_records_break_neither_worker_nor_reader(
    bootstrap: str, group: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(bootstrap, group, topic)
    hostile = [(b"", None), (b"x", b"\xff"), (b"\x1b[2J", b"{}"), (b"x", b"[" * 9_000)]

    async def scene() -> None:
        async with running(app), Fleet(group, bootstrap_servers=bootstrap) as fleet:
            await heard(fleet, ["running"])
            async with Producer(bootstrap_servers=bootstrap) as producer:
                for key, value in hostile:
                    for name in (f"{group}.workers", f"{group}.control"):
                        await producer.send_and_wait(name, value, key=key, partition=0)
            [steered] = await fleet.steer(Intent.QUIET, by="anna", wait_seconds=30)
            assert steered.outcome is Outcome.DONE

    asyncio.run(scene())
    assert caplog.text.count("event=control.unreadable") >= len(hostile)
    assert "\x1b" not in caplog.text


def test_user_without_the_rights_runs_the_worker_and_is_told_what_to_grant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The start creates missing topics; that it may not create those of the fleet ends nothing."""
    security = Security(
        users={"billing": "secret", "admin": "secret"},
        acls=[
            *(
                AclBinding(AclResourceType.TOPIC, topic, "User:billing", AclOperation.READ)
                for topic in ("orders", "billing.retry")
            ),
            AclBinding(AclResourceType.GROUP, "billing", "User:billing", AclOperation.READ),
            *(
                AclBinding(kind, name, "User:admin", AclOperation.ALL)
                for kind, name in (
                    (AclResourceType.TOPIC, "*"),
                    (AclResourceType.CLUSTER, "kafka-cluster"),
                )
            ),
        ],
    )
    values: list[bytes] = []

    async def scene() -> None:
        async with broker(security=security) as there:
            await there.create_topic("orders")
            await there.create_topic("billing.retry")
            options = dict(there.client_options("billing"))
            servers = options.pop("bootstrap_servers")
            app = App("shop", bootstrap_servers=servers, client=options, announce=True)

            @app.share_group("billing", topics="orders", retry=None, dead_letter=None)
            async def work(value: bytes) -> None:
                values.append(value)

            async with running(app):
                await until(lambda: "event=announce.off" in caplog.text, "the warning")
                async with Producer(**there.client_options("admin")) as producer:
                    await producer.send_and_wait("orders", b"1")
                await until(lambda: values == [b"1"], "the record")
        assert caplog.text.count("event=announce.off") == 1
        assert "User:billing needs READ on topic 'shop.control'" in caplog.text
        assert "WRITE on topic 'shop.workers'" in caplog.text

    asyncio.run(scene())


@pytest.mark.slow
def test_processes_divide_a_rate_limit_until_one_of_them_stops(
    bootstrap: str, group: str, topic: str
) -> None:
    limit = RateLimit(10, shared="fleet")

    def sharing() -> App:
        app = App(group, bootstrap_servers=bootstrap, announce=True, grace="2s")

        @app.share_group(group, topics=topic, retry=None, dead_letter=None, rate_limit=limit)
        async def work(value: bytes) -> None: ...

        return app

    def processes(app: App) -> int | None:
        return None if app.worker is None else app.worker.processes_of(group)

    async def scene() -> None:
        first, second = sharing(), sharing()
        async with running(first):
            assert processes(first) is None
            await until(lambda: processes(first) == 1, "one process")
            async with running(second):
                await until(lambda: processes(first) == processes(second) == 2, "two processes")
                assert first.worker is not None
                assert first.worker.counts[0].rate_is_assumed is False
            await until(lambda: processes(first) == 1, "the part of the one that has stopped")

    asyncio.run(scene())


@pytest.mark.slow
def test_process_without_the_topics_of_the_fleet_has_an_assumed_part(
    bootstrap: str, group: str, topic: str
) -> None:
    app = App(group, bootstrap_servers=bootstrap, announce=True, prepare=False, grace="2s")
    handled: list[bytes] = []

    @app.share_group(
        group, topics=topic, retry=None, dead_letter=None, start_from="latest",
        rate_limit=RateLimit(100, shared="fleet", assumed_processes=2),
    )  # fmt: skip
    async def work(value: bytes) -> None:
        handled.append(value)

    async def scene() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            fleet_topics = {f"{group}.workers", f"{group}.control"}
            changes = [
                change for change in await plan(app, admin) if change.name not in fleet_topics
            ]
            await apply(admin, changes)
            async with running(app), Producer(bootstrap_servers=bootstrap) as producer:

                async def are_handled() -> bool:
                    await producer.send_and_wait(topic, b"x")
                    return len(handled) > 2

                await until(are_handled, "records that are handled")
                assert app.worker is not None
                assert app.worker.counts[0].rate_is_assumed is True
                assert app.worker.processes_of(group) is None
            assert not fleet_topics & {*await admin.list_topics()}

    asyncio.run(scene())
