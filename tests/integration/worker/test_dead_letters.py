"""Dead letters from the burial to the way back, on either broker (`conftest`)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sharegroup.cli.main import main
from sharegroup.client import AdminClient, Producer, TopicPartition
from sharegroup.client.fetch.offsets import OffsetSpec
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.dead_letters.ledger import Ledger
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.dead_letters.story import Attempt, RecordOrigin, Story
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.worker.payloads.codec import UnreadablePayload
from sharegroup.worker.records.outcomes import Reject
from tests.integration.cli.conftest import Printed
from tests.integration.worker.dead import (
    Given,
    NoAnswer,
    bury,
    failed,
    lying_in,
    make_topics,
    reject_all,
    set_group,
    until_there,
)
from tests.support.kafka_peer import BROKER_WRITES_LETTERS, KAFKA_VERSION
from tests.support.limits import HANGING_SECONDS

IS_KAFKA = os.environ.get("SHAREGROUP_INTEROP") == "kafka"
Run = Callable[..., Printed]

HEADERS = (("trace", b"\xff\x00"), ("tag", b"one"), ("tag", b"two"), ("none", None))
ATTEMPT = Attempt(1, 1_700_000_100_000, "builtins.TimeoutError", "no answer", "member-1")


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``sharegroup dlq WORDS...`` in this process."""

    def run_words(words: str, *more: str) -> Printed:
        with pytest.raises(SystemExit) as end:
            main(["dlq", *words.split(), *more, "--bootstrap-server", bootstrap])
        printed = capsys.readouterr()
        return Printed(int(end.value.code or 0), printed.out, printed.err)

    return run_words


def set_up(bootstrap: str, group: str, *, letters: int = 0, partitions: int = 1) -> str:
    """The topics of a group with so many letters, of offsets 0, 1, ...: the dead-letter topic."""
    dead = f"{group}.dead"
    asyncio.run(make_topics(bootstrap, dead, f"{group}.retry", partitions=partitions))
    burials = [
        (Given("orders", offset=number, value=b'{"total":%d}' % number), failed(NoAnswer("late")))
        for number in range(letters)
    ]
    asyncio.run(bury(bootstrap, dead, group, *burials))
    return dead


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in asyncio.run(lying_in(bootstrap, topic))]


def test_letter_keeps_all_bytes_and_describes_the_failure(bootstrap: str, group: str) -> None:
    dead = set_up(bootstrap, group)
    given = Given(
        "orders", offset=7, partition=2, key=b"\x00key", value=b"\xfe\xff", headers=HEADERS,
        delivery_count=3,
    )  # fmt: skip
    story = Story(failures=1, attempts=(ATTEMPT,), redrives=1, redrive_id="earlier")

    async def letters() -> list:
        await bury(bootstrap, dead, group, (given, failed(NoAnswer("gone"), story)))
        async with DeadLetterQueue(dead, bootstrap_servers=bootstrap) as queue:
            return [letter async for chunk in queue.chunks() for letter in chunk.letters]

    (letter,) = asyncio.run(letters())
    assert (letter.key, letter.value, letter.headers) == (b"\x00key", b"\xfe\xff", HEADERS)
    assert tuple(letter.all_headers[: len(HEADERS)]) == HEADERS
    assert letter.story == Story(
        origin=RecordOrigin("orders", 2, 7, 1_700_000_000_000), failures=1, attempts=(ATTEMPT,),
        redrives=1, redrive_id="earlier",
    )  # fmt: skip
    death = letter.death
    assert (death.reason, death.group, death.handler, death.member) == (
        "attempts-exhausted", group, "bill", "member-1",
    )  # fmt: skip
    assert (death.error_class, death.error_message) == (
        "tests.integration.worker.dead.NoAnswer",
        "gone",
    )
    assert (death.delivery_count, death.by_broker) == (3, False)
    assert letter.redrive_id == f"{group}/orders/2/7/1"


def test_redriven_record_is_unchanged_and_has_no_failures(
    bootstrap: str, group: str, run: Run
) -> None:
    dead = set_up(bootstrap, group)
    given = Given("orders", offset=7, key=b"k", value=b"v", headers=HEADERS)
    story = Story(failures=5, attempts=(ATTEMPT,))
    asyncio.run(bury(bootstrap, dead, group, (given, failed(NoAnswer("gone"), story))))
    printed = run(f"redrive {dead} --confirm {group}.retry")
    assert (printed.code, printed.out) == (0, f"sent 1 record back to {group}.retry\n")
    (record,) = asyncio.run(lying_in(bootstrap, f"{group}.retry"))
    assert (record.key, record.value) == (b"k", b"v")
    assert tuple(record.headers[: len(HEADERS)]) == HEADERS
    assert {name.split(".")[0] for name, _ in record.headers[len(HEADERS) :]} == {"__sharegroup"}
    assert story_of(record.headers) == Story(
        origin=RecordOrigin("orders", 0, 7, 1_700_000_000_000), failures=0, attempts=(ATTEMPT,),
        redrives=1, redrive_id=f"{group}/orders/0/7/0",
    )  # fmt: skip


def test_second_redrive_sends_only_new_letters(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=3)
    assert run(f"redrive {dead} --confirm {group}.retry --json").rows["sent"] == {
        f"{group}.retry": 3
    }
    again = run(f"redrive {dead} --confirm {group}.retry")
    assert again.out == (
        "sent nothing back\nleft 3: sent back before (--again sends them once more)\n"
    )
    asyncio.run(
        bury(bootstrap, dead, group, (Given("orders", value=b"new"), failed(NoAnswer("x"))))
    )
    assert run(f"redrive {dead} --confirm {group}.retry --json").rows["sent"] == {
        f"{group}.retry": 1
    }
    assert values(bootstrap, f"{group}.retry")[3:] == [b"new"]


def test_redrive_with_a_filter_leaves_the_others_for_the_next(
    bootstrap: str, group: str, run: Run
) -> None:
    dead = set_up(bootstrap, group, letters=6)
    printed = run(
        f"redrive {dead} --confirm {group}.retry --json --where", "total >= 2 and total < 4"
    )
    assert printed.rows["sent"] == {f"{group}.retry": 2}
    printed = run(f"redrive {dead} --confirm {group}.retry --json")
    assert (printed.rows["sent"], printed.rows["left"]) == (
        {f"{group}.retry": 4}, {"redriven-before": 2},
    )  # fmt: skip
    assert values(bootstrap, f"{group}.retry") == [b'{"total":%d}' % n for n in (2, 3, 0, 1, 4, 5)]


def test_again_sends_once_more_under_another_id(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=1)
    run(f"redrive {dead} --confirm {group}.retry")
    assert run(f"redrive {dead} --confirm {group}.retry --again --json").rows["sent"] == {
        f"{group}.retry": 1
    }
    first, second = asyncio.run(lying_in(bootstrap, f"{group}.retry"))
    ids = [story_of(record.headers).redrive_id for record in (first, second)]
    assert ids[0] == f"{group}/orders/0/0/0"
    assert str(ids[1]).startswith(f"{ids[0]}@")


def test_dry_run_changes_nothing(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=2)
    printed = run(f"redrive {dead} --confirm {group}.retry --dry-run")
    assert printed.out == f"would send 2 records back to {group}.retry\n"
    assert values(bootstrap, f"{group}.retry") == []
    assert run(f"redrive {dead} --confirm {group}.retry --json").rows["sent"] == {
        f"{group}.retry": 2
    }


def test_letters_beyond_max_redrives_are_not_sent(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group)
    burials = [
        (Given("orders", offset=n, value=b"%d" % n), failed(NoAnswer("x"), Story(redrives=n)))
        for n in range(4)
    ]
    asyncio.run(bury(bootstrap, dead, group, *burials))
    printed = run(f"redrive {dead} --confirm {group}.retry --json --max-redrives 2")
    assert (printed.rows["sent"], printed.rows["left"]) == (
        {f"{group}.retry": 2}, {"redrives-exhausted": 2},
    )  # fmt: skip
    assert values(bootstrap, f"{group}.retry") == [b"0", b"1"]


def test_redrive_observes_limit_and_rate(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=40)
    began = time.monotonic()
    printed = run(f"redrive {dead} --confirm {group}.retry --json --limit 30 --rate 50")
    assert printed.rows["sent"] == {f"{group}.retry": 30}
    assert time.monotonic() - began >= 0.5, "30 records at 50 in a second, the first 5 at once"
    assert len(values(bootstrap, f"{group}.retry")) == 30


def test_original_topic_gets_the_record_in_its_partition(
    bootstrap: str, group: str, topic: str, run: Run
) -> None:
    dead = set_up(bootstrap, group)
    asyncio.run(make_topics(bootstrap, topic, partitions=3))
    # One key in two partitions: whoever wrote them chose otherwise than by its hash.
    burials = [
        (Given(topic, partition=number, key=b"k", value=b"%d" % number), failed(NoAnswer("x")))
        for number in (2, 1)
    ]
    asyncio.run(bury(bootstrap, dead, group, *burials))
    assert run(f"redrive {dead} --confirm {topic} --to original --json").rows["sent"] == {topic: 2}

    async def ends() -> list[int]:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            where = [TopicPartition(topic, number) for number in range(3)]
            listed = await admin.list_offsets(dict.fromkeys(where, OffsetSpec.LATEST))
            return [listed[partition].offset for partition in where]

    # A record and the marker of its transaction.
    assert asyncio.run(ends()) == [0, 2, 2]


def test_missing_retry_topic_of_the_group_is_reported(bootstrap: str, group: str, run: Run) -> None:
    dead = f"{group}.dead"
    asyncio.run(make_topics(bootstrap, dead))
    asyncio.run(bury(bootstrap, dead, group, (Given("orders"), failed(NoAnswer("x")))))
    printed = run(f"redrive {dead} --confirm {group}.retry")
    assert printed.code == 1
    assert f"topic '{group}.retry' does not exist, so no worker of this group" in printed.out
    assert run(f"list {dead} --json").rows[0]["redriven"] == 0


def test_letters_of_other_groups_are_sent_if_one_group_has_no_retry_topic(
    bootstrap: str, group: str, run: Run
) -> None:
    """A worker and a Spark query share a dead-letter topic; the query has no retry topic."""
    dead = set_up(bootstrap, group, letters=2)
    asyncio.run(bury(bootstrap, dead, f"{group}-spark", (Given("orders"), failed(NoAnswer("x")))))
    printed = run(f"redrive {dead} --confirm {group}.retry --json")
    assert printed.code == 1
    assert printed.rows["sent"] == {f"{group}.retry": 2}
    (refused,) = printed.rows["refused"]
    assert (refused["target"], refused["letters"]) == (f"{group}-spark.retry", 1)
    counts = {row["group"]: row["redriven"] for row in run(f"list {dead} --json").rows}
    assert counts == {group: 2, f"{group}-spark": 0}


def test_recreated_topic_has_new_letters(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=2)
    run(f"redrive {dead} --confirm {group}.retry")

    async def make_again() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            assert await admin.delete_topics([dead]) == {dead: None}
            async with asyncio.timeout(HANGING_SECONDS):
                while dead in await admin.list_topics():
                    await asyncio.sleep(0.05)
        await make_topics(bootstrap, dead)
        await bury(bootstrap, dead, group, (Given("orders", value=b"new"), failed(NoAnswer("x"))))

    asyncio.run(make_again())
    assert run(f"redrive {dead} --confirm {group}.retry --json").rows["sent"] == {
        f"{group}.retry": 1
    }
    # What it said of the topic before is gone by now; the last record is this redrive's.
    assert len(values(bootstrap, f"{dead}.redriven")) == 1


def test_ledger_forgets_purged_letters(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=3)
    run(f"redrive {dead} --confirm {group}.retry --limit 1")
    run(f"redrive {dead} --confirm {group}.retry --limit 1")
    asyncio.run(until_there(bootstrap, f"{dead}.redriven", 2))
    run(f"purge {dead} --redriven --execute")
    assert run(f"redrive {dead} --confirm {group}.retry --json").rows["sent"] == {
        f"{group}.retry": 1
    }
    (left,) = asyncio.run(lying_in(bootstrap, f"{dead}.redriven"))
    assert json.loads(left.value or b"")["ranges"] == [[2, 3]]


def test_concurrent_redrives_forget_only_purged_letters(bootstrap: str, group: str) -> None:
    """Both read the ledger, then both prune it: the second one must not count from a new start."""
    dead = f"{group}.dead"

    async def main() -> None:
        cluster = Cluster(ClientConfig(bootstrap_servers=bootstrap))
        first, second = Ledger(dead, "some id"), Ledger(dead, "some id")
        try:
            await first.create(cluster)
            async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
                for offset in range(3):
                    await first.note(producer, 0, [offset], facts={})
            entries = await first.load(cluster), await second.load(cluster)
            await first.prune(cluster, entries[0], {0: 1})
            await second.prune(cluster, entries[1], {0: 1})
            await second.load(cluster)
            assert second.done(0, 0, 3) == {1, 2}
        finally:
            cluster.close()

    asyncio.run(main())


def test_single_letters_are_read_from_the_middle_of_a_batch(
    bootstrap: str, group: str, topic: str
) -> None:
    async def read_some() -> list[bytes | None]:
        await make_topics(bootstrap, topic)
        async with Producer(bootstrap_servers=bootstrap, linger_ms=200) as producer:
            some = [await producer.send(topic, b"%d" % number) for number in range(10)]
            for letter in some:
                await letter
        cluster = Cluster(ClientConfig(bootstrap_servers=bootstrap))
        try:
            span = PartitionRange(TopicPartition(topic, 0), 3, 6)
            return [
                record.value async for records in read_records(cluster, span) for record in records
            ]
        finally:
            cluster.close()

    assert asyncio.run(read_some()) == [b"3", b"4", b"5"]


def test_letters_are_found_by_the_time_of_their_burial(
    bootstrap: str, group: str, run: Run
) -> None:
    dead = f"{group}.dead"
    now_ms = time.time_ns() // 1_000_000
    hours_ago = (5, 3, 1)

    async def write() -> None:
        await make_topics(bootstrap, dead)
        headers = [("__dlq.errors.group", group.encode()), ("__dlq.errors.topic", b"orders")]
        async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            for hours in hours_ago:
                at_ms = now_ms - hours * 3_600_000
                await producer.send_and_wait(dead, b"{}", headers=headers, timestamp_ms=at_ms)

    asyncio.run(write())

    def count(*words: str) -> int:
        return sum(row["letters"] for row in run(f"list {dead} --json", *words).rows)

    assert [count("--since", since) for since in ("6h", "4h", "2h", "30m")] == [3, 2, 1, 0]
    assert [count("--until", until) for until in ("6h", "4h", "2h", "30m")] == [0, 1, 2, 3]
    assert count("--since", "4h", "--until", "2h") == 1
    moment = datetime.fromtimestamp((now_ms - 2 * 3_600_000) / 1000, UTC)
    assert count("--since", moment.isoformat()) == 1


def test_list_counts_letters_by_failure(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=2)
    burials = (
        Given("orders", offset=2),
        failed(Reject("negative total"), reason=DeadLetterReason.REJECTED),
    )
    asyncio.run(bury(bootstrap, dead, group, burials, handler="refund"))
    run(f"redrive {dead} --confirm {group}.retry --at 0:1")
    rows = run(f"list {dead} --json").rows
    assert [
        (row["handler"], row["reason"], row["error_class"], row["letters"], row["redriven"])
        for row in rows
    ] == [
        ("bill", "attempts-exhausted", "tests.integration.worker.dead.NoAnswer", 2, 1),
        ("refund", "rejected", "sharegroup.worker.Reject", 1, 0),
    ]
    assert rows[1]["last_message"] == "negative total"
    assert run(f"list {dead} --json --error-class NoAnswer --not-redriven").rows[0]["letters"] == 1


def test_show_prints_all_fields_of_a_letter(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group)
    try:
        raise NoAnswer("no answer in 3 s")  # noqa: TRY301  For its traceback.
    except NoAnswer as error:
        step = failed(error, Story(failures=1, attempts=(ATTEMPT,)))
    given = Given("orders", offset=9, key=b"c-7", value=b'{"total":3}', headers=[("tag", b"x")])
    asyncio.run(bury(bootstrap, dead, group, (given, step)))
    printed = run(f"show {dead}")
    lines = printed.out.splitlines()
    assert printed.code == 0
    assert lines[1].startswith("reason    attempts-exhausted: The record failed as often")
    assert "error     tests.integration.worker.dead.NoAnswer: no answer in 3 s" in lines
    assert "record    orders 0:9  2023-11-14T22:13:20.000Z" in lines
    assert "          1.  2023-11-14T22:15:00.000Z  builtins.TimeoutError: no answer" in lines
    assert 'value     {"total":3}' in lines
    assert "header    tag=x" in lines
    assert any(line.strip().startswith("raise NoAnswer(") for line in lines)
    (row,) = run(f"show {dead} --json").rows
    assert row["traceback"].endswith("NoAnswer: no answer in 3 s\n")
    assert run(f"show {dead} --key nobody").code == 1


def test_export_is_read_back_byte_for_byte(
    bootstrap: str, group: str, run: Run, tmp_path: Path
) -> None:
    dead = set_up(bootstrap, group)
    given = Given("orders", offset=7, key=b"\xff", value=b"\x00\xfe", headers=HEADERS)
    asyncio.run(bury(bootstrap, dead, group, (given, failed(NoAnswer("x")))))
    file = tmp_path / "letters.jsonl"
    assert run(f"export {dead} --output {file}").code == 0
    assert json.loads(file.read_text())["dead"]["reason"] == "attempts-exhausted"
    asyncio.run(make_topics(bootstrap, f"{dead}.copy"))
    words = ["produce", f"{dead}.copy", "--json", str(file), "--bootstrap-server", bootstrap]
    with pytest.raises(SystemExit) as end:
        main(words)
    assert not end.value.code
    (letter,) = asyncio.run(lying_in(bootstrap, dead))
    (copy,) = asyncio.run(lying_in(bootstrap, f"{dead}.copy"))
    assert (copy.key, copy.value, copy.headers) == (letter.key, letter.value, letter.headers)


def test_purge_deletes_up_to_the_first_letter_that_does_not_match(
    bootstrap: str, group: str, run: Run
) -> None:
    dead = set_up(bootstrap, group, letters=6)
    (row,) = run(f"purge {dead} --json --dry-run --where", "total in [0, 1, 3, 5]").rows
    assert row == {
        "topic": dead, "partition": 0, "deleted": 2, "before_offset": 2, "behind": 2,
    }  # fmt: skip
    assert len(values(bootstrap, dead)) == 6
    printed = run(f"purge {dead} --execute --where", "total in [0, 1, 3, 5]")
    assert "2 matching dead letters not deleted, because of dead letters before" in printed.err
    assert values(bootstrap, dead) == [b'{"total":%d}' % number for number in (2, 3, 4, 5)]
    run(f"purge {dead} --all --execute")
    assert values(bootstrap, dead) == []
    assert run(f"list {dead}").out == "There are no dead letters.\n"


def test_purge_deletes_redriven_letters(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=4)
    run(f"redrive {dead} --confirm {group}.retry --limit 3")
    assert run(f"purge {dead} --redriven --execute --json").rows[0]["deleted"] == 3
    assert run(f"redrive {dead} --confirm {group}.retry --json").rows["sent"] == {
        f"{group}.retry": 1
    }


def test_list_has_80_columns_with_usual_names(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group)
    steps = [
        failed(TimeoutError("late")),
        failed(UnreadablePayload("no JSON"), reason=DeadLetterReason.UNREADABLE),
        failed(TimeoutError("late"), reason=DeadLetterReason.DELIVERIES_EXHAUSTED),
    ]
    letters = [(Given("orders"), step) for step in steps]
    asyncio.run(bury(bootstrap, dead, "billing", *letters, handler="charge_card"))
    headings, *lines = run(f"list {dead}").out.splitlines()
    assert max(map(len, (headings, *lines))) <= 80
    assert headings.split() == [
        "GROUP", "HANDLER", "REASON", "ERROR-CLASS", "LETTERS", "REDRIVEN",
    ]  # fmt: skip
    assert sorted(line.split()[2:] for line in lines) == [
        ["attempts-exhausted", "TimeoutError", "1", "0"],
        ["deliveries-exhausted", "TimeoutError", "1", "0"],
        ["unreadable", "UnreadablePayload", "1", "0"],
    ]


def test_list_counts_claimed_letters_in_its_json(bootstrap: str, group: str, run: Run) -> None:
    dead = brokers_letters(bootstrap, f"{group}.t", group, copies=True)
    asyncio.run(bury(bootstrap, dead, "billing", (Given("orders"), failed(TimeoutError("late")))))
    claimed = {row["group"]: row["claimed"] for row in run(f"list {dead} --json").rows}
    assert claimed == {"billing": 1, group: 2 if IS_KAFKA else 0}


def brokers_letters(bootstrap: str, topic: str, group: str, *, copies: bool) -> str:
    """Two records that a group rejected, and whose letters the broker wrote."""
    if IS_KAFKA and not BROKER_WRITES_LETTERS:
        pytest.skip(f"Apache Kafka {KAFKA_VERSION} writes no dead letters")
    dead = f"dlq.{group}"

    async def set_up_and_reject() -> None:
        await make_topics(bootstrap, topic, f"{group}.retry")
        await make_topics(bootstrap, dead, errors_deadletterqueue_group_enable="true")
        await set_group(
            bootstrap, group, share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name=dead,
            errors_deadletterqueue_copy_record_enable=str(copies).lower(),
        )  # fmt: skip
        async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            for number in range(2):
                await producer.send_and_wait(
                    topic, b'{"total":%d}' % number, key=b"k%d" % number, headers=HEADERS
                )
        await reject_all(bootstrap, group, topic, 2)
        await until_there(bootstrap, dead, 2)

    asyncio.run(set_up_and_reject())
    return dead


@pytest.mark.parametrize("copies", [True, False], ids=["copied", "not-copied"])
def test_letters_of_the_broker_are_redriven_with_headers(
    bootstrap: str, topic: str, group: str, run: Run, copies: bool
) -> None:
    dead = brokers_letters(bootstrap, topic, group, copies=copies)
    (row,) = run(f"list {dead} --json --where", "total >= 0").rows
    assert (row["group"], row["reason"], row["letters"]) == (group, "rejected", 2)
    assert row["claimed"] == (2 if IS_KAFKA else 0)
    (shown,) = run(f"show {dead} --json --at 0:1").rows
    assert (shown["value"], shown["by_broker"]) == ('{"total":1}', True)
    confirm = f"--confirm {group}.retry" if IS_KAFKA else ""
    assert shown["claimed"] is IS_KAFKA
    printed = run(f"redrive {dead} {confirm} --json")
    assert (printed.rows["sent"], printed.rows["without_headers"]) == ({f"{group}.retry": 2}, 0)
    records = asyncio.run(lying_in(bootstrap, f"{group}.retry"))
    assert [(record.key, record.value) for record in records] == [
        (b"k0", b'{"total":0}'), (b"k1", b'{"total":1}'),
    ]  # fmt: skip
    assert [tuple(record.headers[: len(HEADERS)]) for record in records] == [HEADERS] * 2
    told = story_of(records[1].headers)
    assert told.origin is not None
    assert told.origin[:3] == (topic, 0, 1)
    assert (told.failures, told.redrives, told.redrive_id) == (0, 1, f"{dead}/0/1")
    assert run(f"redrive {dead} --confirm {group}.retry --json").rows["left"] == {
        "redriven-before": 2
    }


@pytest.mark.parametrize("copies", [True, False], ids=["copied", "not-copied"])
def test_letters_whose_records_were_deleted_are_reported(
    bootstrap: str, topic: str, group: str, run: Run, copies: bool
) -> None:
    dead = brokers_letters(bootstrap, topic, group, copies=copies)

    async def delete() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_records({TopicPartition(topic, 0): 1})

    asyncio.run(delete())
    printed = run(f"redrive {dead} --confirm {group}.retry --json")
    sent = {f"{group}.retry": 2 if copies else 1}
    left = {} if copies else {"record-gone": 1}
    assert (printed.rows["sent"], printed.rows["left"]) == (sent, left)
    if copies:
        # Ours copied the headers, Kafka's did not.
        assert printed.rows["without_headers"] == (1 if IS_KAFKA else 0)
    else:
        assert (
            "value     not in the dead letter, and no longer in its topic"
            in run(f"show {dead} --at 0:0").out
        )


@pytest.mark.parametrize(
    ("copies", "timestamp_ms"), [(True, 1), (False, None)], ids=["copied", "not-copied"]
)
def test_record_of_a_recreated_topic_is_not_that_of_the_letter(
    bootstrap: str, topic: str, group: str, run: Run, copies: bool, timestamp_ms: int | None
) -> None:
    dead = brokers_letters(bootstrap, topic, group, copies=copies)

    async def make_again() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_topics([topic])
            async with asyncio.timeout(HANGING_SECONDS):
                while topic in await admin.list_topics():
                    await asyncio.sleep(0.05)
        await make_topics(bootstrap, topic)
        async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            for _ in range(2):
                await producer.send_and_wait(topic, b"another", timestamp_ms=timestamp_ms)

    asyncio.run(make_again())
    printed = run(f"redrive {dead} --confirm {group}.retry --json")
    if copies:
        assert values(bootstrap, f"{group}.retry") == [b'{"total":0}', b'{"total":1}']
        assert printed.rows["without_headers"] == (2 if IS_KAFKA else 0)
    else:
        assert (printed.rows["sent"], printed.rows["left"]) == ({}, {"record-gone": 2})


def test_record_that_is_no_letter_is_not_sent(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=1)

    async def produce() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(dead, b"anything", headers=[("__dlq.errors.offset", b"x")])

    asyncio.run(produce())
    printed = run(f"redrive {dead} --confirm {group}.retry --json")
    assert (printed.rows["sent"], printed.rows["left"]) == (
        {f"{group}.retry": 1}, {"no-dead-letter": 1},
    )  # fmt: skip
    assert run(f"list {dead} --json --reason unknown").rows[0]["letters"] == 1


def test_foreign_record_in_the_ledger_is_reported(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=2)
    run(f"redrive {dead} --confirm {group}.retry --limit 1")

    async def produce() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(f"{dead}.redriven", b"anything")

    asyncio.run(produce())
    printed = run(f"redrive {dead} --confirm {group}.retry")
    assert printed.code == 1
    assert f"InvalidRecord: topic '{dead}.redriven' offset 2: expected an entry of the redrive" in (
        printed.err
    )
    assert len(values(bootstrap, f"{group}.retry")) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("purge t --all", "give one of --dry-run and --execute"),
        ("purge t --execute", "give options that select dead letters, or --all"),
        (
            "purge t --all --reason rejected --execute",
            "give options that select dead letters, or --all",
        ),
        ("list t --since yesterday", "expected YYYY-MM-DDThh:mm:ss[.sss][Z], or a time before now"),
        ("list t --where total.__class__()", "is not supported: only fields"),
        ("show t --at 7", "expected PARTITION:OFFSET"),
        ("show", "name one topic"),
    ],
)
def test_misuse_is_named(run: Run, words: str, said: str) -> None:
    printed = run(words)
    assert printed.code == 2
    assert said in printed.err


def test_error_names_the_missing_topic(run: Run) -> None:
    printed = run("list no-such-topic")
    assert printed.code == 1
    assert "topic 'no-such-topic' does not exist" in printed.err


def test_show_reports_that_more_letters_match(bootstrap: str, group: str, run: Run) -> None:
    dead = set_up(bootstrap, group, letters=2)
    first, both = run(f"show {dead}"), run(f"show {dead} --limit 2")
    assert first.out.count("attempts-exhausted") == 1
    assert first.err == "More dead letters match than the 1 shown; see --limit.\n"
    assert both.out.count("attempts-exhausted") == 2
    assert both.err == ""


def test_claimed_letters_are_sent_only_to_a_target_that_is_confirmed(
    bootstrap: str, group: str, run: Run
) -> None:
    dead, own = set_up(bootstrap, group, letters=2), f"{group}.retry"
    other = f"{group}-other"
    asyncio.run(make_topics(bootstrap, f"{other}.retry"))
    asyncio.run(bury(bootstrap, dead, other, (Given("orders"), failed(NoAnswer("x")))))
    assert run(f"show {dead} --json").rows[0]["claimed"] is True
    assert "claimed   each producer of this topic" in run(f"show {dead}").out
    for words in ("", " --dry-run"):
        printed = run(f"redrive {dead}{words}")
        assert printed.code == 1
        assert f"confirm it by name (--confirm {own})" in printed.out
        assert f"confirm it by name (--confirm {other}.retry)" in printed.out
    assert values(bootstrap, own) == []
    printed = run(f"redrive {dead} --confirm {own} --json")
    assert (printed.code, printed.rows["sent"]) == (1, {own: 2})
    (refused,) = printed.rows["refused"]
    assert (refused["target"], refused["letters"]) == (f"{other}.retry", 1)
    assert values(bootstrap, f"{other}.retry") == []
    # The name of the group's own topic confirms no other target.
    assert run(f"redrive {dead} --again --to original --confirm {own} --json").rows["sent"] == {}


@pytest.mark.skipif(IS_KAFKA, reason="Apache Kafka does not mark its letters")
@pytest.mark.parametrize("copies", [True, False], ids=["copied", "not-copied"])
def test_forged_story_of_a_rejected_record_does_not_aim_a_redrive(
    bootstrap: str, topic: str, group: str, run: Run, copies: bool
) -> None:
    """A record that claims to be a letter of payments-workers is only sent where it came from."""
    dead, victim = f"dlq.{group}", f"{group}-payments"
    forged = [
        ("__sharegroup.origin.topic", victim.encode()),
        ("__sharegroup.origin.partition", b"0"),
        ("__sharegroup.origin.offset", b"0"),
        ("__sharegroup.origin.timestamp", b"1"),
        ("__sharegroup.dead.reason", b"rejected"),
        ("__sharegroup.dead.group", victim.encode()),
    ]

    async def set_up_and_reject() -> None:
        await make_topics(bootstrap, topic, f"{group}.retry", victim, f"{victim}.retry")
        await make_topics(bootstrap, dead, errors_deadletterqueue_group_enable="true")
        await set_group(
            bootstrap, group, share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name=dead,
            errors_deadletterqueue_copy_record_enable=str(copies).lower(),
        )  # fmt: skip
        async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            await producer.send_and_wait(topic, b"evil", headers=forged)
        await reject_all(bootstrap, group, topic, 1)
        await until_there(bootstrap, dead, 1)

    asyncio.run(set_up_and_reject())
    shown = run(f"show {dead}")
    assert victim not in "".join(line for line in shown.out.splitlines() if "header" not in line)
    assert run(f"redrive {dead} --json").rows["sent"] == {f"{group}.retry": 1}
    sent = run(f"redrive {dead} --again --to original --json").rows["sent"]
    assert sent == {topic: 1}
    assert values(bootstrap, victim) == values(bootstrap, f"{victim}.retry") == []
    (copy,) = asyncio.run(lying_in(bootstrap, f"{group}.retry"))
    origin = story_of(copy.headers).origin
    assert origin is not None
    assert origin[:3] == (topic, 0, 0)
