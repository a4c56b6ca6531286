"""``start_from`` of a ShareConsumer and ``--from-beginning``, on our broker and on Apache Kafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigOperation,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
    StartFrom,
)
from sharegroup.client.sync import ShareConsumer as SyncShareConsumer
from sharegroup.errors import GroupAuthorizationFailed
from tests.integration.cli.piping import at, sharegroup
from tests.interop.guarded import Guarded, Right, guarded as guarded_broker
from tests.support.chosen_broker import (
    BOTH_IN_INTEROP,
    LONG_WITH_A_JVM,
    SHORT_TIMES,
    RunningBroker,
    running,
)
from tests.support.limits import HANGING_SECONDS

NOTHING_SECONDS = 1.0
"""Time in which a consumer that has joined would have received a record."""


@pytest.fixture(scope="module", params=BOTH_IN_INTEROP)
def there(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    with running(request.param, tmp_path_factory.mktemp("start"), SHORT_TIMES) as broker:
        yield broker


async def fill(bootstrap: str, topic: str, *values: bytes, partitions: int = 3) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        if topic not in await admin.list_topics():
            assert await admin.create_topics([NewTopic(topic, partitions)]) == {topic: None}
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send_and_wait(topic, value, partition=number % partitions)


async def reset_setting(bootstrap: str, group: str) -> None:
    """Remove the group's own start position, so that the default holds again."""
    resource = ConfigResource(ResourceType.GROUP, group)
    removal = AlterConfig("share.auto.offset.reset", None, ConfigOperation.DELETE)
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert await admin.incremental_alter_configs({resource: [removal]}) == {resource: None}


async def received(topic: str, group: str, count: int, **options: Any) -> set[Any]:
    """The values that a new member gets: ``count`` of them, and what comes soon after."""
    values: list[Any] = []
    async with ShareConsumer(topic, group_id=group, **options) as consumer:
        async with asyncio.timeout(HANGING_SECONDS):
            while len(values) < count or not consumer.assignment:
                values += [record.value for record in await consumer.poll(0.2)]
        values += [record.value for record in await consumer.poll(NOTHING_SECONDS)]
    assert len(values) == len(set(values))
    return set(values)


def test_new_group_starts_at_the_first_record_of_every_partition(there: RunningBroker) -> None:
    async def scenario() -> None:
        bootstrap = there.bootstrap_servers
        await fill(bootstrap, "earliest", b"0", b"1", b"2", b"3")
        got = await received(
            "earliest", "earliest", 4, bootstrap_servers=bootstrap, start_from="earliest"
        )
        assert got == {b"0", b"1", b"2", b"3"}

    asyncio.run(scenario())


def test_group_with_offsets_continues_there_and_the_log_says_so_once(
    there: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bootstrap = there.bootstrap_servers
        await fill(bootstrap, "kept", b"0", b"1", partitions=1)
        assert await received(
            "kept", "kept", 2, bootstrap_servers=bootstrap, start_from=StartFrom.EARLIEST
        )
        await fill(bootstrap, "kept", b"2", partitions=1)
        caplog.set_level(logging.INFO, "sharegroup.client.share")
        assert await received(
            "kept", "kept", 1, bootstrap_servers=bootstrap, start_from="latest"
        ) == {b"2"}

    asyncio.run(scenario())
    lines = [line for line in caplog.messages if line.startswith("event=group.start_kept")]
    assert len(lines) == 1
    assert "group=kept start_from=latest reason='the group has offsets" in lines[0]


def test_topic_that_is_new_to_the_group_starts_at_its_first_record(there: RunningBroker) -> None:
    async def scenario() -> None:
        bootstrap = there.bootstrap_servers
        await fill(bootstrap, "older", b"old", partitions=1)
        await fill(bootstrap, "newer", b"new", partitions=1)
        options: Any = {"bootstrap_servers": bootstrap, "group_id": "grows"}
        async with ShareConsumer("older", **options, start_from="earliest") as consumer:
            assert [record.value for record in await consumer.poll(HANGING_SECONDS)] == [b"old"]
            consumer.subscribe("older", "newer")
            assert [record.value for record in await consumer.poll(HANGING_SECONDS)] == [b"new"]

    asyncio.run(scenario())


def test_blocking_consumer_starts_there_too(there: RunningBroker) -> None:
    asyncio.run(fill(there.bootstrap_servers, "blocking", b"0"))
    options: Any = {"bootstrap_servers": there.bootstrap_servers, "group_id": "blocking"}
    with SyncShareConsumer("blocking", **options, start_from="earliest") as consumer:
        assert [record.value for record in consumer.poll(HANGING_SECONDS)] == [b"0"]


def test_command_tells_where_a_new_group_starts_and_from_beginning_changes_it(
    there: RunningBroker,
) -> None:
    bootstrap = there.bootstrap_servers
    asyncio.run(fill(bootstrap, "told", b"0", b"1", b"2"))
    at_end = sharegroup(*at(bootstrap, "consume told --group told-end --timeout-ms 300"))
    assert (at_end.code, at_end.out) == (0, b"")
    assert at_end.err == (
        "sharegroup: group 'told-end' is new and starts at the end of told: it does not get the 3 "
        "records already there (with --from-beginning it does)\nsharegroup: processed 0 records\n"
    )
    words = "consume told --group told-first --from-beginning --max-messages 3 --timeout-ms 20000"
    first = sharegroup(*at(bootstrap, words))
    assert (first.code, sorted(first.lines)) == (0, [b"0", b"1", b"2"])
    assert first.err == "sharegroup: processed 3 records\n"
    again = sharegroup(
        *at(bootstrap, "consume told --group told-first --from-beginning --timeout-ms 300")
    )
    assert (again.code, again.out) == (0, b"")
    assert again.err.startswith(
        "sharegroup: group 'told-first' is not new to told: it continues at its offsets, "
        "--from-beginning has no effect; to start again: sharegroup groups reset-offsets "
        "told-first --topic told --to-earliest --execute\n"
    )


def test_perf_consume_gets_the_records_that_perf_produce_left(there: RunningBroker) -> None:
    bootstrap = there.bootstrap_servers
    words = "perf produce --topic perf-first --num-records 500 --record-size 10"
    assert sharegroup(*at(bootstrap, words)).code == 0
    consume = "perf consume --topic perf-first --num-records 500 --timeout 20000"
    done = sharegroup(*at(bootstrap, f"{consume} --group perf-first --from-beginning"))
    assert (done.code, done.err) == (0, "")
    told = sharegroup(*at(bootstrap, f"{consume} --group perf-end --timeout 300"))
    assert told.code == 1
    assert "group 'perf-end' is new and starts at the end of perf-first" in told.err


@LONG_WITH_A_JVM
@pytest.mark.parametrize("may_read", [True, False], ids=["may read settings", "may not read them"])
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "with offsets"])
def test_missing_right_fails_a_new_group_only(
    guarded: Guarded, *, may_read: bool, is_new: bool
) -> None:
    rights = [
        Right("READ", "topic", "orders", "literal"),
        Right("READ", "group", "post", "literal"),
    ]
    if may_read:
        rights.append(Right("DESCRIBE_CONFIGS", "group", "post", "literal"))
    visitor = guarded.visitor(rights)
    topic, group = visitor.prefix + "orders", visitor.prefix + "post"

    async def scenario() -> None:
        await fill(visitor.open_door, topic, b"0", b"1", partitions=1)
        if not is_new:
            open_door: Any = {"bootstrap_servers": visitor.open_door, "start_from": "earliest"}
            assert await received(topic, group, 2, **open_door) == {b"0", b"1"}
            await reset_setting(visitor.open_door, group)
            await fill(visitor.open_door, topic, b"3", partitions=1)
        got = received(topic, group, 1, start_from="earliest", **visitor.options)
        if not is_new:
            assert await got == {b"3"}
            return
        with pytest.raises(GroupAuthorizationFailed) as refused:
            await got
        assert f"User:{visitor.name} needs ALTER_CONFIGS on group {group!r}" in str(refused.value)
        assert "sets share.auto.offset.reset of a new group" in str(refused.value)

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(tmp_path_factory.mktemp("guarded")) as broker:
        yield broker
