"""``sharegroup tail --group``: records of a share group by state, and who holds them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from sharegroup.cli.main import main
from sharegroup.cli.records.group_tail import UNSETTLED, Browsed, GroupRecords
from sharegroup.client import (
    AclBinding,
    AclOperation,
    AclResourceType,
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
    TopicPartition,
)
from sharegroup.client.fetch.record_reading import TopicMadeAgain
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.share_runs.broker_runs import run_pages
from sharegroup.testing import run_broker
from tests.docs.write_docs import JSON_KEYS
from tests.integration.cli.conftest import Printed, produce, set_up
from tests.integration.cli.terminal import terminal
from tests.integration.cli.test_inspect import half_settled
from tests.support.chosen_broker import KAFKA, chosen

pytestmark = pytest.mark.skipif(chosen() == KAFKA, reason="has a broker of its own")

TOPIC, SECRET = "orders", "secret"
EVERYONE = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
Tail = Callable[..., Printed]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Offsets 0 to 4 are settled, 5 is released, 6 rejected, 7 held, and 8 to 11 are new."""
    with run_broker(EVERYONE) as broker:
        address = broker.bootstrap_servers
        set_up(address, TOPIC)
        asyncio.run(produce(address, TOPIC))
        with half_settled(address, TOPIC):
            asyncio.run(more_topics(address))
            yield address


async def more_topics(bootstrap: str) -> None:
    """Four more records, and a topic that the group does not have."""
    await produce(bootstrap, TOPIC)
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert await admin.create_topics([NewTopic("other", 1)]) == {"other": None}


@pytest.fixture
def tail(bootstrap: str, capfd: pytest.CaptureFixture[str]) -> Tail:
    def run_words(words: str) -> Printed:
        with pytest.raises(SystemExit) as end:
            main(["tail", *words.split(), "--bootstrap", bootstrap])
        printed = capfd.readouterr()
        return Printed(int(end.value.code or 0), printed.out, printed.err)

    return run_words


def documents(printed: Printed) -> list[Any]:
    assert printed.code == 0, printed.err
    return [json.loads(line) for line in printed.out.splitlines()]


def test_json_has_the_record_its_state_and_who_holds_it(tail: Tail) -> None:
    found = documents(tail(f"{TOPIC} --group {TOPIC} --json"))
    assert list(found[0]) == JSON_KEYS["tail --group"].split()
    assert [(row["offset"], row["state"], row["delivery_count"]) for row in found] == [
        (5, "available", 1),
        (7, "acquired", 1),
        *((offset, "available", 0) for offset in range(8, 12)),
    ]
    assert [row["value"] for row in found] == ["x"] * 6
    assert [row["member_id"] is not None for row in found] == [False, True, *[False] * 4]
    assert 0 < found[1]["lock_ms_left"] <= 30_000


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        ("--state acquired", [7]),
        ("--state archived", [6]),
        ("--state archiving", []),
        ("--state archived,acquired", [6, 7]),
        ("--limit 2", [5, 7]),
        ("--offsets 6:9", [7, 8]),
        ("--offsets 10:", [10, 11]),
        ("--offsets 99:", []),
        ("--partition 0 --limit 1", [5]),
    ],
)
def test_states_offsets_and_limit_select_records(
    words: str, offsets: list[int], tail: Tail
) -> None:
    printed = tail(f"{TOPIC} --group {TOPIC} --json {words}")
    assert [row["offset"] for row in documents(printed)] == offsets


def test_delayed_record_is_not_settled(bootstrap: str, tail: Tail) -> None:
    set_up(bootstrap, "later")
    asyncio.run(produce(bootstrap, "later"))

    async def release_one() -> None:
        async with ShareConsumer(
            "later",
            bootstrap_servers=bootstrap,
            group_id="later",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            first, *others = await consumer.poll(timeout=5)
            first.release(delay=timedelta(hours=1))
            for record in others:
                record.accept()
            await consumer.commit()

    asyncio.run(release_one())
    found = documents(tail("later --group later --json"))
    assert [(row["offset"], row["state"]) for row in found] == [(4, "delayed")]


def test_without_records_the_states_are_named(tail: Tail) -> None:
    printed = tail(f"{TOPIC} --group {TOPIC} --state archiving")
    assert printed.out == f"Group '{TOPIC}' has no such records: archiving.\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (f"{TOPIC} --state acquired", 2, "--state and --limit need --group"),
        (f"{TOPIC} --group g --state lost", 2, "expected some of available,"),
        (f"{TOPIC} --group g -f", 2, "--group excludes --follow: `sharegroup groups inspect"),
        (f"{TOPIC} --group g --format %v", 2, "--group excludes --format: use --json"),
        (f"{TOPIC} --group g -n 3", 2, "--limit is the number of records"),
        (f"{TOPIC} --group nobody", 1, "there is no group 'nobody'"),
        (f"other --group {TOPIC}", 1, f"has no share partition other; its topics are: {TOPIC}"),
        (f"nowhere --group {TOPIC}", 1, "has no share partition nowhere"),
        (f"{TOPIC} --group {TOPIC} --partition 9", 1, "has no share partition 9 of topic"),
    ],
)
def test_impossible_selection_is_refused(words: str, code: int, says: str, tail: Tail) -> None:
    refused = tail(words)
    assert (refused.code, says in " ".join(refused.err.split())) == (code, True), refused.err


def test_without_read_on_the_topic_the_offsets_are_shown(bootstrap: str, tail: Tail) -> None:
    set_up(bootstrap, SECRET)
    asyncio.run(produce(bootstrap, SECRET))

    async def describe_only() -> None:
        binding = AclBinding(AclResourceType.TOPIC, SECRET, "User:ANONYMOUS", AclOperation.DESCRIBE)
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            assert await admin.create_acls([binding]) == {binding: None}

    asyncio.run(describe_only())
    printed = tail(f"{SECRET} --group {SECRET} --json")
    assert documents(printed) == [
        {
            "topic": SECRET, "partition": 0, "offset": offset, "state": "available",
            "delivery_count": 0, "member_id": None, "lock_ms_left": None,
        }
        for offset in range(4, 8)
    ]  # fmt: skip
    assert "keys, values and headers are left out" in printed.err
    assert "READ" in printed.err


def test_topic_that_the_user_may_not_describe_is_said_to_be_left_out(
    bootstrap: str, tail: Tail
) -> None:
    set_up(bootstrap, "hidden")

    async def hide() -> None:
        binding = AclBinding(AclResourceType.TOPIC, "hidden", "User:other", AclOperation.DESCRIBE)
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            assert await admin.create_acls([binding]) == {binding: None}

    asyncio.run(hide())
    refused = tail("hidden --group hidden")
    assert "its topics are: none (without those that the user may not DESCRIBE)" in refused.err


def test_records_that_are_deleted_after_the_listing_are_counted(bootstrap: str) -> None:
    set_up(bootstrap, "shorter")
    asyncio.run(produce(bootstrap, "shorter"))

    async def read() -> tuple[list[int], int]:
        browsed = Browsed("shorter", frozenset(UNSETTLED), 100, "shorter")
        where = TopicPartition("shorter", 0)
        cluster = Cluster(config_from(ReadingConfig, {"bootstrap_servers": bootstrap}))
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            records = GroupRecords(cluster, browsed, (await cluster.topic("shorter")).topic_id)
            (page,) = [
                page async for page in run_pages(admin.list_share_group_runs, "shorter", [where])
            ]
            await admin.delete_records({where: 6})
            found = [record.offset async for part in records.of(page) for record in part]
            assert await admin.delete_topics(["shorter"]) == {"shorter": None}
            assert await admin.create_topics([NewTopic("shorter", 1)]) == {"shorter": None}
            with pytest.raises(TopicMadeAgain):
                _ = [part async for part in records.of(page)]
        cluster.close()
        return found, records.absent_count

    assert asyncio.run(read()) == ([6, 7], 2)


def test_topic_of_a_thousand_partitions_is_listed(bootstrap: str, tail: Tail) -> None:
    async def fill() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            assert await admin.create_topics([NewTopic("wide", 1_000)]) == {"wide": None}
            group = ConfigResource(ResourceType.GROUP, "wide")
            earliest = AlterConfig("share.auto.offset.reset", "earliest")
            assert await admin.incremental_alter_configs({group: [earliest]}) == {group: None}
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for partition in (0, 499, 999):
                await producer.send_and_wait("wide", b"x", partition=partition)
        async with ShareConsumer("wide", bootstrap_servers=bootstrap, group_id="wide") as consumer:
            while not consumer.assignment:
                await consumer.poll(timeout=0.1)

    asyncio.run(fill())
    found = documents(tail("wide --group wide --json --state available"))
    assert [row["partition"] for row in found] == [0, 499, 999]


def test_table_fits_80_columns_and_escapes_what_controls_a_terminal(bootstrap: str) -> None:
    set_up(bootstrap, "odd")

    async def write() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            value = "\x1b[2J\u202e" + "very long " * 1_000
            await producer.send_and_wait("odd", value.encode(), key=b"\xff\n")
            await producer.send_and_wait("odd", None)

    asyncio.run(write())
    words = ("tail", "odd", "--group", "odd", "--bootstrap", bootstrap)
    with terminal(*words, columns=80) as shown:
        assert shown.end()[0] == 0
    assert "\x1b[2J" not in shown.text
    assert "\u202e" not in shown.text
    assert max(map(len, shown.lines)) <= 80
    assert any(line.startswith("0 ") and "available" in line for line in shown.lines)
