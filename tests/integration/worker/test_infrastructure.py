"""What an application needs of a cluster: planned, made, compared, and made at a start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client import AdminClient, AlterConfig, ConfigResource, NewTopic, ResourceType
from sharegroup.client.admin.types import ConfigEntry, TopicDescription
from sharegroup.errors import (
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from sharegroup.worker import App, BrokerDeadLetter, DeadLetter, Retry
from sharegroup.worker.events import Event
from sharegroup.worker.infrastructure import Change, ChangeKind, apply, plan, prepare
from tests.integration.worker.processes import WorkerProcess

PRELUDE = """
app = App("{group}", bootstrap_servers="{bootstrap}")

@app.share_group("{group}", topics="{topic}", dead_letter=DeadLetter(partitions={partitions}),
                 group_configs={{"share.delivery.count.limit": "7"}})
async def work(text: str) -> None: ...
"""


def application(bootstrap: str, group: str, topic: str, **options: Any) -> App:
    app = App(group, bootstrap_servers=bootstrap)

    @app.share_group(group, topics=topic, **options)
    async def work(text: str) -> None:
        """Nothing is sent."""

    return app


def shown(some: Sequence[Change]) -> list[tuple[str, str, str | None, str | None, str | None]]:
    """Kind, name without the group's, setting, and both values."""
    return [
        (str(change.kind), change.name, change.setting, change.now, change.wanted)
        for change in some
    ]


async def described(admin: AdminClient, name: str) -> TopicDescription:
    found = (await admin.describe_topics([name]))[name]
    assert isinstance(found, TopicDescription), found
    return found


async def config(admin: AdminClient, kind: ResourceType, name: str, key: str) -> str | None:
    resource = ConfigResource(kind, name)
    found = (await admin.describe_configs([resource]))[resource]
    assert isinstance(found, dict), found
    entry: ConfigEntry = found[key]
    return entry.value


async def alter(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str) -> None:
    resource = ConfigResource(kind, name)
    done = await admin.incremental_alter_configs({resource: [AlterConfig(key, value)]})
    assert done == {resource: None}


def test_a_plan_that_was_applied_leaves_nothing_to_plan(
    bootstrap: str, group: str, topic: str
) -> None:
    async def work() -> None:
        app = application(
            bootstrap,
            group,
            topic,
            dead_letter=DeadLetter(partitions=2, retention="7d"),
            group_configs={"share.delivery.count.limit": "7"},
            retry=Retry(max_attempts=3),
        )
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            planned = await plan(app, admin)
            assert {change.kind for change in planned} == {ChangeKind.MISSING}
            assert {change.name for change in planned if change.resource == "topic"} == {
                topic, f"{group}.dead", f"{group}.retry", f"{group}.retry.due",
                *(f"{group}.retry.{tier}" for tier in ("5s", "30s", "2m", "10m", "1h", "6h")),
            }  # fmt: skip
            results = await apply(admin, planned)
            assert [error for _, error in results if error is not None] == []
            assert await plan(app, admin) == []
            assert (await described(admin, f"{group}.dead")).partition_count == 2
            of_topic = ResourceType.TOPIC
            assert await config(admin, of_topic, f"{group}.dead", "retention.ms") == "604800000"
            stamp = await config(admin, of_topic, f"{group}.retry.5s", "message.timestamp.type")
            assert stamp == "LogAppendTime"
            of_group = ResourceType.GROUP
            assert await config(admin, of_group, group, "share.auto.offset.reset") == "earliest"
            assert await config(admin, of_group, group, "share.delivery.count.limit") == "7"

    asyncio.run(work())


def test_drift_is_corrected_and_undeclared_settings_are_kept(
    bootstrap: str, group: str, topic: str
) -> None:
    async def work() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            dead = f"{group}.dead"
            app = application(bootstrap, group, topic, dead_letter=DeadLetter())
            await apply(admin, await plan(app, admin))
            await alter(admin, ResourceType.TOPIC, dead, "retention.ms", "1000")
            await alter(admin, ResourceType.TOPIC, dead, "segment.bytes", "16777216")
            await alter(admin, ResourceType.GROUP, group, "share.auto.offset.reset", "latest")

            other = application(bootstrap, group, topic, dead_letter=DeadLetter(partitions=3))
            planned = await plan(other, admin)
            assert shown(planned) == [
                ("drift", dead, "partitions", "1", "3"),
                ("drift", dead, "retention.ms", "1000", "1209600000"),
                ("drift", group, "share.auto.offset.reset", "latest", "earliest"),
            ]
            assert [error for _, error in await apply(admin, planned)] == [None, None, None]
            assert (await described(admin, dead)).partition_count == 3
            assert await config(admin, ResourceType.TOPIC, dead, "segment.bytes") == "16777216"
            assert await plan(other, admin) == []

            # Back to one partition: Kafka can't, and nobody deletes a topic for that.
            assert shown(await plan(app, admin)) == [("refused", dead, "partitions", "3", "1")]
            assert await apply(admin, await plan(app, admin)) == []

    asyncio.run(work())


def test_only_prune_deletes_topics_and_only_those_of_the_group(
    bootstrap: str, group: str, topic: str
) -> None:
    async def work() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            strangers = [f"{group}.retry.archive", f"{group}.deadlines", f"{group}x.retry"]
            await admin.create_topics([NewTopic(name, num_partitions=1) for name in strangers])
            await apply(admin, await plan(application(bootstrap, group, topic), admin))
            bare = application(bootstrap, group, topic, retry=None)
            planned = await plan(bare, admin)
            assert {(change.kind, change.why) for change in planned} == {
                (ChangeKind.SURPLUS, "holds 0 records")
            }
            surplus = {change.name for change in planned}
            assert surplus == {
                f"{group}.retry.{tier}" for tier in ("5s", "30s", "2m", "10m", "1h", "6h", "due")
            }
            assert await apply(admin, planned) == []
            assert surplus <= {*await admin.list_topics()}

            await apply(admin, planned, prune=True)
            left = {*await admin.list_topics()}
            assert not surplus & left
            assert {topic, f"{group}.retry", *strangers} <= left

            # A group that the application has no more: only when it is named.
            other = application(bootstrap, f"{group}.new", topic, retry=None)
            await apply(admin, await plan(other, admin))
            assert await plan(other, admin) == []
            gone = await plan(other, admin, former=[group])
            assert [change.name for change in gone] == [f"{group}.dead", f"{group}.retry"]

    asyncio.run(work())


def test_a_topic_that_the_application_declares_is_made_and_grows(
    bootstrap: str, group: str, topic: str
) -> None:
    def declared(partitions: int) -> App:
        app = application(bootstrap, group, topic, retry=None, dead_letter=None)
        assert app.topic(topic, partitions=partitions, configs={"retention.ms": "60000"}) == topic
        return app

    async def work() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await prepare(declared(2), admin)
            assert (await described(admin, topic)).partition_count == 2
            assert await config(admin, ResourceType.TOPIC, topic, "retention.ms") == "60000"
            # A start makes what is missing, and nothing else.
            assert await prepare(declared(3), admin) == []
            assert (await described(admin, topic)).partition_count == 2
            await apply(admin, await plan(declared(3), admin))
            assert (await described(admin, topic)).partition_count == 3

    asyncio.run(work())


def test_broker_dead_letters_are_applied_as_group_settings(
    bootstrap: str, group: str, topic: str
) -> None:
    async def work() -> None:
        dead = f"{topic}.dead"
        app = application(bootstrap, group, topic, dead_letter=BrokerDeadLetter(dead))
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            results = await apply(admin, await plan(app, admin))
            assert [error for _, error in results if error is not None] == []
            assert await plan(app, admin) == []
            key = "errors.deadletterqueue.topic.name"
            assert await config(admin, ResourceType.GROUP, group, key) == dead

    asyncio.run(work())


def test_start_creates_missing_topics_and_only_reports_drift(
    bootstrap: str, group: str, topic: str
) -> None:
    async def work() -> None:
        told: list[Event] = []
        app = application(bootstrap, group, topic, dead_letter=DeadLetter(partitions=2))
        app.on("infrastructure.created", told.append)
        app.on("infrastructure.drift", told.append)
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(f"{group}.dead", num_partitions=1)])
            await alter(admin, ResourceType.GROUP, group, "share.auto.offset.reset", "latest")
            made = await prepare(app, admin)
            assert {change.name for change in made} == {
                group, topic, f"{group}.retry", f"{group}.retry.due",
                *(f"{group}.retry.{tier}" for tier in ("5s", "30s", "2m", "10m", "1h", "6h")),
            }  # fmt: skip
            drift = {(event.topic or event.group, event.details["setting"]) for event in told[:-11]}
            assert (f"{group}.dead", "partitions") in drift
            assert (group, "share.auto.offset.reset") in drift
            assert [event.name for event in told[-10:]] == ["infrastructure.created"] * 10
            key = "share.auto.offset.reset"
            assert await config(admin, ResourceType.GROUP, group, key) == "latest"
            assert await prepare(app, admin) == []

    asyncio.run(work())


def test_concurrent_starts_create_each_topic_once(bootstrap: str, group: str, topic: str) -> None:
    async def work() -> None:
        app = application(bootstrap, group, topic, dead_letter=DeadLetter())
        admins = [AdminClient(bootstrap_servers=bootstrap) for _ in range(6)]
        try:
            await asyncio.gather(*(prepare(app, admin) for admin in admins))
            assert await plan(app, admins[0]) == []
        finally:
            for admin in admins:
                await admin.close()

    asyncio.run(work())


def test_refused_setting_is_reported_and_does_not_stop_the_start(
    bootstrap: str, group: str, topic: str
) -> None:
    async def work() -> None:
        told: list[Event] = []
        app = application(
            bootstrap, group, topic, group_configs={"share.delivery.count.limit": "0"}
        )
        app.on("infrastructure.drift", told.append)
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await prepare(app, admin)
            assert (await described(admin, topic)).partition_count > 0
            # What is right beside it is made all the same.
            of_group = ResourceType.GROUP
            assert await config(admin, of_group, group, "share.auto.offset.reset") == "earliest"
        assert [event.details["setting"] for event in told] == ["share.delivery.count.limit"]
        assert told[0].error is not None

    asyncio.run(work())


@pytest.mark.slow
def test_the_verbs_of_the_command_line_and_their_exit_codes(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    def text(partitions: int) -> str:
        return PRELUDE.format(bootstrap=bootstrap, group=group, topic=topic, partitions=partitions)

    worker = WorkerProcess(tmp_path, text(2))
    app = "shop:app"
    different = worker.run("check", app)
    assert different.returncode == 2, different.stderr
    assert f"missing  topic     {group}.dead" in different.stdout
    applied = worker.run("apply", app, "--json")
    assert applied.returncode == 0, applied.stderr
    assert {row["status"] for row in json.loads(applied.stdout)} == {"created", "set"}
    same = worker.run("check", app)
    assert (same.returncode, same.stdout) == (0, "There are no differences.\n")

    worker.write(text(1))
    refused = worker.run("apply", app)
    assert refused.returncode == 1
    assert "partitions cannot be removed" in refused.stderr
    assert worker.run("check", app).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["check"], "Missing argument 'APP'"),
        (["check", "shop:nothing"], "shop has no 'nothing'; there is shop:app"),
        (["check", "shop:app", "--bootstrap", "127.0.0.1:1", "--nope"], "No such option"),
    ],
)
def test_a_check_that_was_misused_is_no_difference(
    bootstrap: str, group: str, topic: str, tmp_path: Path, words: list[str], text: str
) -> None:
    application = PRELUDE.format(bootstrap=bootstrap, group=group, topic=topic, partitions=1)
    done = WorkerProcess(tmp_path, application).run(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr


class LeastPrivileged(AdminClient):
    """An admin client of a user who may use topics, and neither make them nor see settings."""

    principal = "User:ann"

    async def describe_configs(
        self, resources: Any, *, documentation: bool = False, node_id: int | None = None
    ) -> Any:
        closed = {
            ResourceType.TOPIC: TopicAuthorizationFailed,
            ResourceType.GROUP: GroupAuthorizationFailed,
        }
        return {
            resource: closed[resource.type](f"{resource.name} needs DESCRIBE_CONFIGS")
            for resource in resources
        }

    async def create_topics(self, topics: Any, *, validate_only: bool = False) -> Any:
        return {
            topic.name: TopicAuthorizationFailed(f"{topic.name} needs CREATE") for topic in topics
        }


class Blind(LeastPrivileged):
    """That of a user who may not see what does not exist, or is closed."""

    async def describe_topics(
        self, names: Any = None, *, include_authorized_operations: bool = False
    ) -> Any:
        return {name: TopicAuthorizationFailed(f"{name} needs DESCRIBE") for name in names}


def test_least_privileges_suffice_for_existing_infrastructure(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    async def work() -> None:
        told: list[Event] = []
        app = application(bootstrap, group, topic)
        app.on("*", told.append)
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await apply(admin, await plan(app, admin))
        async with LeastPrivileged(bootstrap_servers=bootstrap) as admin:
            assert await prepare(app, admin) == []
            found = await plan(app, admin)
        assert [event.name for event in told] == ["infrastructure.unknown"]
        assert f"topic {group}.dead, topic {group}.retry, " in str(told[0].details["of"])
        assert f"group {group}" in str(told[0].details["of"])
        assert {change.kind for change in found} == {ChangeKind.UNKNOWN}
        # The handled topic is somebody else's, and nobody looked at its settings.
        assert topic not in {change.name for change in found}

    asyncio.run(work())


def test_topics_that_can_neither_be_seen_nor_made_end_a_start_and_no_send(
    bootstrap: str, group: str, topic: str
) -> None:
    async def work() -> None:
        told: list[Event] = []
        app = application(bootstrap, group, topic, retry=None)
        app.on("infrastructure.unknown", told.append)
        async with LeastPrivileged(bootstrap_servers=bootstrap) as admin:
            # A user who may describe what is missing is told to create it.
            with pytest.raises(TopicAuthorizationFailed, match=r"dead needs CREATE"):
                await prepare(app, admin)
        async with Blind(bootstrap_servers=bootstrap) as admin:
            with pytest.raises(TopicAuthorizationFailed) as refused:
                await prepare(app, admin)
            assert str(refused.value) == (
                "this user is not authorized for a topic "
                f"(User:ann needs WRITE on topic '{group}.dead'; "
                f"READ on topic '{group}.retry', '{topic}'; or CREATE where it does not exist)"
            )
            told.clear()
            assert await prepare(app, admin, only_sends=True) == []
            assert [event.name for event in told][-1] == "infrastructure.unknown"
            assert f"topic {group}.dead, topic {group}.retry" in str(told[-1].details["of"])

    asyncio.run(work())


def test_a_topic_that_can_not_be_made_ends_the_start(bootstrap: str, group: str) -> None:
    """A broker that has no such topic and refuses to make one leaves nothing to handle."""

    class Refusing(AdminClient):
        async def create_topics(self, topics: Any, *, validate_only: bool = False) -> Any:
            return {topic.name: UnknownTopicOrPartition(f"no {topic.name}") for topic in topics}

    async def work() -> None:
        app = application(bootstrap, group, f"{group}.never")
        async with Refusing(bootstrap_servers=bootstrap) as admin:
            with pytest.raises(UnknownTopicOrPartition):
                await prepare(app, admin)

    asyncio.run(work())
