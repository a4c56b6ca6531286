"""Dead letters that lie, logs that change while they are read: nothing waits, the rest is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sharegroup.client import AdminClient, Producer, TopicPartition
from sharegroup.client.fetch.record_reading import PartitionRange, TopicMadeAgain, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.compression import GZIP
from tests.attacks.batches import batch
from tests.integration.worker.dead import Given, NoAnswer, bury, failed, lying_in, make_topics
from tests.integration.worker.test_dead_letters import IS_KAFKA, Run, run, set_up, values
from tests.support.limits import HANGING_SECONDS
from tests.support.unreadable import produce_batches

__all__ = ["run"]


HOSTILE = "\x1b]0;owned\x07\r\n\u202e"
Headers = Sequence[tuple[str, bytes | None]]


async def write(bootstrap: str, topic: str, *letters: Headers) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for headers in letters:
            await producer.send_and_wait(topic, b"letter", headers=list(headers))


def of_a_broker(topic: str, offset: bytes, group: str) -> Headers:
    """A letter whose record is only in its own topic."""
    return [
        ("__dlq.errors.topic", topic.encode()),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", offset),
        ("__dlq.errors.group", group.encode()),
    ]


def of_a_worker(group: bytes, **others: bytes) -> Headers:
    told = {
        "origin.topic": b"orders", "origin.partition": b"0", "origin.offset": b"7",
        "origin.timestamp": b"0", "dead.reason": b"rejected", "dead.group": group,
        **{name.replace("_", "."): content for name, content in others.items()},
    }  # fmt: skip
    return [(f"__sharegroup.{name}", content) for name, content in told.items()]


async def make_again(bootstrap: str, topic: str) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert await admin.delete_topics([topic]) == {topic: None}
        async with asyncio.timeout(HANGING_SECONDS):
            while topic in await admin.list_topics():
                await asyncio.sleep(0.05)
    await make_topics(bootstrap, topic)


@pytest.mark.parametrize("offset", [b"0", b"1", b"2", b"7", b"%d" % (2**63 - 1), b"9" * 19])
def test_reading_a_letters_record_beyond_the_log_end_terminates(
    bootstrap: str, group: str, topic: str, run: Run, offset: bytes
) -> None:
    """The topic was recreated after the letter, so its log is shorter than before."""
    dead = set_up(bootstrap, group)
    asyncio.run(make_topics(bootstrap, topic))
    asyncio.run(write(bootstrap, dead, of_a_broker(topic, offset, group)))
    asyncio.run(write(bootstrap, topic, [("a", b"b")]))

    async def letters() -> int:
        async with DeadLetterQueue(dead, bootstrap_servers=bootstrap) as queue:
            async with asyncio.timeout(HANGING_SECONDS):
                return sum([len(chunk.letters) async for chunk in queue.chunks(complete=True)])

    assert asyncio.run(letters()) == 1
    shown = run(f"show {dead}")
    assert shown.code == 0
    redriven = run(f"redrive {dead} --json --confirm {group}.retry")
    assert redriven.code == 0
    assert sum(redriven.rows["sent"].values()) + sum(redriven.rows["left"].values()) == 1


def test_range_that_begins_beyond_the_log_end_is_empty(bootstrap: str, topic: str) -> None:
    asyncio.run(make_topics(bootstrap, topic))
    asyncio.run(write(bootstrap, topic, []))

    async def read_from(first: int) -> int:
        cluster = Cluster(ClientConfig(bootstrap_servers=bootstrap))
        try:
            async with asyncio.timeout(HANGING_SECONDS):
                span = PartitionRange(TopicPartition(topic, 0), first, first + 100)
                return sum([len(records) async for records in read_records(cluster, span)])
        finally:
            cluster.close()

    assert [asyncio.run(read_from(first)) for first in (0, 1, 2, 1000)] == [1, 0, 0, 0]


def test_letters_that_cannot_be_sent_do_not_end_a_redrive(
    bootstrap: str, group: str, run: Run
) -> None:
    dead = set_up(bootstrap, group, letters=2)
    without = f"{group}-new"
    asyncio.run(
        write(
            bootstrap, dead,
            of_a_worker(b"a/b"), of_a_worker(b"a/b"), of_a_worker(HOSTILE.encode()),
            of_a_worker(b"\xff\xfe"), of_a_worker(b"g" * 500_000),
        )
    )  # fmt: skip
    asyncio.run(bury(bootstrap, dead, without, (Given("orders"), failed(NoAnswer("x")))))
    asyncio.run(bury(bootstrap, dead, group, (Given("orders", value=b"z"), failed(NoAnswer("x")))))
    confirm = f"--confirm {group}.retry --confirm {without}.retry"
    dry = run(f"redrive {dead} --json {confirm} --dry-run")
    printed = run(f"redrive {dead} --json {confirm}")
    assert (dry.code, printed.code) == (1, 1)
    assert dry.rows["refused"] == printed.rows["refused"]
    assert printed.rows["sent"] == {f"{group}.retry": 3}
    told = {row["target"]: (row["letters"], row["at"]) for row in printed.rows["refused"]}
    assert told == {
        "a/b.retry": (2, ["0:2-3"]),
        f"{HOSTILE}.retry": (1, ["0:4"]),
        "\ufffd\ufffd.retry": (1, ["0:5"]),
        "g" * 249: (1, ["0:6"]),
        f"{without}.retry": (1, ["0:7"]),
    }
    assert values(bootstrap, f"{group}.retry") == [b'{"total":0}', b'{"total":1}', b"z"]
    # The rest can be sent when there is a topic for it.
    asyncio.run(make_topics(bootstrap, f"{without}.retry"))
    assert run(f"redrive {dead} --json {confirm}").rows["sent"] == {f"{without}.retry": 1}


def test_letters_that_cannot_be_sent_are_listed_in_a_table(
    bootstrap: str, group: str, run: Run
) -> None:
    dead = set_up(bootstrap, group, letters=1)
    asyncio.run(write(bootstrap, dead, of_a_worker(b"a/b"), of_a_worker(HOSTILE.encode())))
    printed = run(f"redrive {dead} --confirm {group}.retry")
    assert printed.code == 1
    assert [line.split() for line in printed.out.splitlines()] == [
        ["sent", "1", "record", "back", "to", f"{group}.retry"],
        ["could", "not", "send", "2,", "which", "are", "kept:"],
        ["TARGET", "LETTERS", "AT"],
        ["a/b.retry", "1", "0:1"],
        [r"\x1b]0;owned\x07\r\n\u202e.retry", "1", "0:2"],
        "no topic can have this name".split(),
    ]


def test_letter_too_large_for_its_target_is_not_sent(bootstrap: str, group: str, run: Run) -> None:
    dead, target = f"{group}.dead", f"{group}.retry"
    asyncio.run(make_topics(bootstrap, dead))
    asyncio.run(make_topics(bootstrap, target, max_message_bytes="3000"))
    burials = [
        (Given("orders", value=b"x" * size), failed(NoAnswer("late"))) for size in (1, 4000, 2)
    ]
    for burial in burials:
        asyncio.run(bury(bootstrap, dead, group, burial))
    printed = run(f"redrive {dead} --json --confirm {group}.retry")
    assert printed.code == 1
    assert [(row["target"], row["at"]) for row in printed.rows["refused"]] == [(target, ["0:1"])]
    assert values(bootstrap, target) == [b"x", b"xx"]


def test_letters_with_missing_original_topics_are_reported(
    bootstrap: str, group: str, run: Run
) -> None:
    dead = set_up(bootstrap, group)
    gone = of_a_worker(group.encode(), origin_topic=b"no-such-topic")
    bad = of_a_worker(group.encode(), origin_topic=b"../etc")
    negative = of_a_worker(group.encode(), origin_offset=b"-5")
    absurd = of_a_worker(group.encode(), failures=b"9" * 30, attempts=b"[" * 100_000)
    asyncio.run(write(bootstrap, dead, gone, bad, negative, absurd))
    printed = run(f"redrive {dead} --to original --json")
    assert {row["target"]: row["at"] for row in printed.rows["refused"]} == {
        "no-such-topic": ["0:0"],
        "../etc": ["0:1"],
        "orders": ["0:3"],
    }
    assert printed.rows["left"] == {"no-dead-letter": 1}
    for verb in ("list", "show --limit 9", "export", "purge --all --dry-run"):
        name, *words = verb.split()
        shown = run(f"{name} {dead} {' '.join(words)}")
        assert (shown.code, "Traceback" in shown.err) == (0, False)


@pytest.mark.skipif(IS_KAFKA, reason="Kafka decodes each batch before it appends it")
def test_undecodable_batch_is_reported_and_other_letters_are_sent(
    bootstrap: str, group: str, run: Run
) -> None:
    dead = set_up(bootstrap, group, letters=1)
    produce_batches(bootstrap, dead, batch(b"not gzip at all", count=1, codec=GZIP))
    asyncio.run(bury(bootstrap, dead, group, (Given("orders", value=b"z"), failed(NoAnswer("x")))))
    printed = run(f"redrive {dead} --json --confirm {group}.retry")
    assert printed.code == 1
    assert printed.rows["sent"] == {f"{group}.retry": 2}
    (refused,) = printed.rows["refused"]
    assert (refused["target"], refused["at"]) == (dead, ["0:1"])
    for words in (f"list {dead} --json", f"show {dead} --limit 9", f"export {dead}"):
        shown = run(words)
        assert shown.code == 1
        assert f"topic '{dead}' partition 0 offsets 1 to 1 cannot be read" in shown.err
    # A purge must not delete what it could not look at.
    assert run(f"purge {dead} --redriven --execute").code == 1
    with pytest.raises(CorruptMessage):
        asyncio.run(lying_in(bootstrap, dead))


def test_topic_recreated_midway_ends_the_reading(bootstrap: str, group: str) -> None:
    asyncio.run(made_again_midway(bootstrap, group))


async def made_again_midway(bootstrap: str, group: str) -> None:
    dead = f"{group}.dead"
    await make_topics(bootstrap, dead)
    await bury(bootstrap, dead, group, (Given("orders"), failed(NoAnswer("x"))))
    async with DeadLetterQueue(dead, bootstrap_servers=bootstrap) as queue:
        await make_again(bootstrap, dead)
        await bury(bootstrap, dead, group, (Given("orders"), failed(NoAnswer("new"))))
        with pytest.raises(TopicMadeAgain):
            async for _ in queue.chunks():
                pass
        with pytest.raises(TopicMadeAgain):
            await queue.delete_before({TopicPartition(dead, 0): 1})
    assert len(await lying_in(bootstrap, dead)) == 1


def test_letters_that_are_deleted_midway_are_passed_over(bootstrap: str, group: str) -> None:
    asyncio.run(deleted_midway(bootstrap, group))


async def deleted_midway(bootstrap: str, group: str) -> None:
    dead = f"{group}.dead"
    await make_topics(bootstrap, dead)
    for _ in range(3):
        await bury(bootstrap, dead, group, (Given("orders"), failed(NoAnswer("x"))))
    async with DeadLetterQueue(dead, bootstrap_servers=bootstrap) as queue:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_records({TopicPartition(dead, 0): 2})
        seen = [letter.offset async for chunk in queue.chunks() for letter in chunk.letters]
        assert seen == [2]
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_records({TopicPartition(dead, 0): 3})
        assert [chunk async for chunk in queue.chunks()] == []


def test_dead_letters_in_a_topic_with_the_longest_name_are_redriven_once(
    bootstrap: str, group: str, run: Run
) -> None:
    """`<dead letters>.redriven` would be longer than Kafka allows."""
    dead, own = f"{group}.".ljust(249, "d"), f"{group}.retry"
    asyncio.run(make_topics(bootstrap, dead, own))
    asyncio.run(write(bootstrap, dead, of_a_worker(group.encode())))
    assert run(f"redrive {dead} --json --confirm {own}").rows["sent"] == {own: 1}
    again = run(f"redrive {dead} --json --confirm {own}").rows
    assert (again["sent"], again["left"]) == ({}, {"redriven-before": 1})
