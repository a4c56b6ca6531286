"""``sharegroup tail`` against a broker: what is printed, and that nothing is taken."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sharegroup.cli.records.tail import TailRange, TopicTail
from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig, config_from
from sharegroup.record_documents import Row
from tests.integration.cli.conftest import produce, set_up
from tests.integration.cli.piping import PATIENT, Piped, at, sharegroup
from tests.integration.cli.terminal import CTRL_C, terminal
from tests.integration.cli.test_inspect import half_settled
from tests.support.chosen_broker import KAFKA, OURS, chosen, running
from tests.support.limits import HANGING_SECONDS
from tests.support.unreadable import produce_batches, untrue

NO_BAD_BATCH = pytest.mark.skipif(chosen() == KAFKA, reason="Kafka refuses such a batch")
ONLY_OURS = pytest.mark.skipif(chosen() == KAFKA, reason="kills a broker of its own")


async def fill(bootstrap: str, topic: str, partitions: int, *records: tuple[int, int, str]) -> None:
    """Produce records, given as partition, timestamp and value; make the topic if necessary."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        if topic not in await admin.list_topics():
            assert await admin.create_topics([NewTopic(topic, partitions)]) == {topic: None}
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for partition, time, value in records:
            await producer.send_and_wait(
                topic, value.encode(), key=b"k", partition=partition, timestamp_ms=time
            )


@pytest.fixture(scope="module")
def letters(bootstrap: str) -> str:
    """A topic with eight records that alternate between two partitions, by their timestamps."""
    records = [(0, 1_000, "a"), (0, 3_000, "c"), (0, 5_000, "e"), (0, 7_000, "g")]
    records += [(1, 2_000, "b"), (1, 4_000, "d"), (1, 6_000, "f"), (1, 8_000, "h")]
    asyncio.run(fill(bootstrap, "letters", 2, *records))
    return "letters"


def tail(bootstrap: str, words: str, *more: str) -> Piped:
    return sharegroup(*at(bootstrap, f"tail {words}"), *more)


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("letters", "abcdefgh"),
        ("letters -n 3", "fgh"),
        ("--topic letters -n 0", ""),
        ("letters --partition 1", "bdfh"),
        ("letters --partition 1 -n 2", "fh"),
        ("letters --offsets 1:3", "cedf"),
        ("letters --offsets 3:", "gh"),
        ("letters --offsets 2 --partition 0", "e"),
        ("letters --offsets 1: --max-messages 4", "cegd"),
        ("letters --since 1970-01-01T00:00:05", "egfh"),
        ("letters --since 1m", ""),
    ],
)
def test_selected_records_are_printed(bootstrap: str, words: str, values: str) -> None:
    done = tail(bootstrap, words)
    assert (done.code, done.out.decode().replace("\n", ""), done.err) == (0, values, "")


@pytest.mark.usefixtures("letters")
def test_records_are_written_in_the_formats_of_consume(bootstrap: str) -> None:
    (document,) = tail(bootstrap, "letters -n 1 --json").documents
    assert document == {
        "topic": "letters", "partition": 1, "offset": 3, "timestamp": 8_000, "key": "k",
        "value": "h", "headers": [],
    }  # fmt: skip
    form = ("--format", r"%i %d{rfc3339} %p:%o %k=%v\n")
    assert tail(bootstrap, "letters -n 2", *form).lines == [
        b"1 1970-01-01T00:00:07.000Z 0:3 k=g",
        b"2 1970-01-01T00:00:08.000Z 1:3 k=h",
    ]
    assert tail(bootstrap, "letters -n 1", "--property", "print.key=true").out == b"k\th\n"


def test_nothing_is_taken_and_no_group_is_made(bootstrap: str) -> None:
    asyncio.run(fill(bootstrap, "untouched", 1, (0, 1_000, "x")))
    sharegroup(
        *at(bootstrap, "configs alter --group holder --set share.auto.offset.reset=earliest")
    )
    before = sharegroup(*at(bootstrap, "groups list --json")).out
    assert tail(bootstrap, "untouched").out == b"x\n"
    assert sharegroup(*at(bootstrap, "groups list --json")).out == before
    form = ("--format", "%v %c", "--max-messages", "1")
    taken = sharegroup(*at(bootstrap, f"consume untouched --group holder {PATIENT}"), *form)
    assert taken.out == b"x 1", "the first delivery"


def test_topic_of_a_thousand_partitions_is_read(bootstrap: str) -> None:
    records = [(partition, 1_000 + partition, str(partition)) for partition in (0, 499, 999)]
    asyncio.run(fill(bootstrap, "wide", 1_000, *records))
    assert tail(bootstrap, "wide -n 2 --timeout 60000").lines == [b"499", b"999"]


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        ("qzxqzxq", 1, "topic 'qzxqzxq' does not exist; list the topics with"),
        ("letters --partition 2", 1, "topic 'letters' has partitions 0 to 1, not 2"),
        ("letters -n 1 --offsets 1:", 2, "--records excludes --offsets and --since"),
        ("letters -f --offsets 1:2", 2, "--follow excludes an END of --offsets"),
        ("letters --offsets x", 2, "'x': expected FIRST:END"),
        ("letters --since soon", 2, "'soon': expected YYYY-MM-DD"),
        ("letters --decode state", 2, "--decode state is for __consumer_offsets and __share_group"),
        ("letters --json --format %v", 2, "exclude each other"),
    ],
)
@pytest.mark.usefixtures("letters")
def test_impossible_selection_is_refused(
    bootstrap: str, words: str, code: int, problem: str
) -> None:
    done = tail(bootstrap, words)
    assert done.code == code
    assert problem in done.err


def test_records_of_a_group_come_from_the_coordinator_or_the_state_topic(bootstrap: str) -> None:
    set_up(bootstrap, "browsed")
    asyncio.run(produce(bootstrap, "browsed"))
    with half_settled(bootstrap, "browsed"):
        shown = tail(bootstrap, "browsed --group browsed --offsets 4: --json")
    states = [(row["offset"], row["state"], row["value"]) for row in shown.documents]
    if chosen() == KAFKA:
        assert "looks as if nobody had it" in shown.err
        assert states == [(5, "available", "x"), (7, "available", "x")]
    else:
        assert (states, shown.err) == ([(5, "available", "x"), (7, "acquired", "x")], "")


def test_states_of_groups_are_decoded(bootstrap: str) -> None:
    asyncio.run(fill(bootstrap, "decoded", 1, (0, 1_000, "x")))
    sharegroup(
        *at(bootstrap, "configs alter --group decoder --set share.auto.offset.reset=earliest")
    )
    taken = f"consume decoded --group decoder --max-messages 1 {PATIENT}"
    assert sharegroup(*at(bootstrap, taken)).out == b"x\n"
    states = tail(bootstrap, "__share_group_state --decode state --since 1m").documents
    ours = [state for state in states if state["key"]["data"]["groupId"] == "decoder"]
    assert ours, "the state of the share partition was written"
    assert ours[-1]["topic"] == "__share_group_state"
    state = ours[-1]["value"]["data"]
    if chosen() == KAFKA:  # The start offset that Kafka stores trails: docs/differences.md.
        (batch,) = state["stateBatches"]
        assert (batch["firstOffset"], batch["lastOffset"], batch["deliveryState"]) == (0, 0, 2)
    else:
        assert state["startOffset"] == 1
    groups = tail(bootstrap, "__consumer_offsets --decode state --since 1m").documents
    types = {group["key"]["type"] for group in groups if "decoder" in json.dumps(group["key"])}
    assert {10, 11} <= types, "members and the epoch of the share group"


@NO_BAD_BATCH
def test_unreadable_batch_is_omitted_and_reported(bootstrap: str) -> None:
    asyncio.run(fill(bootstrap, "torn", 1, (0, 1_000, "x")))
    produce_batches(bootstrap, "torn", untrue())
    asyncio.run(fill(bootstrap, "torn", 1, (0, 2_000, "y")))
    done = tail(bootstrap, "torn -n 1000")
    assert (done.code, done.out) == (1, b"x\ny\n")
    assert "topic 'torn' partition 0 offsets 1 to 400 cannot be read and are omitted" in done.err


@pytest.mark.usefixtures("letters")
def test_reader_that_has_seen_enough_ends_the_command_without_an_error(bootstrap: str) -> None:
    asyncio.run(fill(bootstrap, "long", 1, *((0, 1_000, "x" * 100_000) for _ in range(10))))
    with tailing(bootstrap, "long") as child:
        assert child.stdout is not None
        assert os.read(child.stdout.fileno(), 1) == b"x"
        child.stdout.close()
        assert child.stderr is not None
        assert child.stderr.read() == b""
    assert child.returncode == 0


OLD_TIMES = (-9_000_000_000_000_000_000, -3, -2, -1, 1_000)
BEFORE_1970 = {value: time for time, value in zip(OLD_TIMES, "abcde", strict=True)}


@pytest.fixture(scope="module")
def old(bootstrap: str) -> str:
    """A topic with records of timestamps before 1970."""
    records = [(0, time, value) for value, time in BEFORE_1970.items()]
    asyncio.run(fill(bootstrap, "old", 1, *records))
    return "old"


@pytest.mark.parametrize("since", ["1960-01-01", "1969-12-31T23:59:59.999Z", "9999w", "99w"])
def test_records_since_a_time_before_1970_are_all_records(
    bootstrap: str, old: str, since: str
) -> None:
    """Kafka takes a negative number for a named offset or for a later version."""
    values = "abcde" if since != "99w" else ""
    assert tail(bootstrap, f"{old} --since {since}").out.decode().split() == list(values)


def test_records_of_any_timestamps_are_piped_to_another_topic_unchanged(
    bootstrap: str, old: str
) -> None:
    asyncio.run(fill(bootstrap, "copied", 1))
    piped = tail(
        bootstrap,
        f"{old} --json -n 100",
        *(),
    )
    sent = sharegroup(*at(bootstrap, "produce copied --json"), stdin=piped.out)
    assert (sent.code, sent.err) == (0, "")
    copies = tail(bootstrap, "copied --json -n 100").documents
    assert {row["value"]: row["timestamp"] for row in copies} == BEFORE_1970


@pytest.mark.parametrize("since", ["1700000000", "1700000000000", "2011011112345"])
def test_number_of_seconds_or_milliseconds_is_no_date(bootstrap: str, since: str) -> None:
    """The last one is 2011-01-11 23:45 for Python."""
    refused = tail(bootstrap, f"letters --since {since}")
    assert refused.code == 2
    assert "expected YYYY-MM-DDThh:mm:ss" in refused.err


def test_follow_prints_new_records_of_all_partitions_until_a_signal(bootstrap: str) -> None:
    asyncio.run(fill(bootstrap, "followed", 2, (0, 1_000, "old"), (1, 2_000, "last")))
    with tailing(bootstrap, "followed -f -n 1") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"last\n"
        asyncio.run(fill(bootstrap, "followed", 2, (0, 3_000, "new")))
        assert child.stdout.readline() == b"new\n"
        asyncio.run(fill(bootstrap, "followed", 2, (1, 4_000, "newer")))
        assert child.stdout.readline() == b"newer\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=HANGING_SECONDS)
    assert (child.returncode, out, err) == (0, b"", b"")


def test_follow_reads_a_topic_that_was_made_again_from_its_start(bootstrap: str) -> None:
    """Its metadata was refreshed between two looks; else the verb ends with `TopicMadeAgain`."""

    async def values(found: AsyncIterator[Sequence[Row]]) -> list[bytes | None]:
        return [row.value async for rows in found for row in rows]

    async def run() -> None:
        await fill(bootstrap, "again", 1, (0, 1_000, "old"))
        config = config_from(ClientConfig, {"bootstrap_servers": bootstrap})
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            with closing(Cluster(config)) as cluster:
                await look(admin, TopicTail(cluster, "again", TailRange(), lambda *_: None))

    async def look(admin: AdminClient, tail: TopicTail) -> None:
        stop = asyncio.Event()
        assert await values(tail.rows()) == [b"old"]
        assert await admin.delete_topics(["again"]) == {"again": None}
        await fill(bootstrap, "again", 1, (0, 3_000, "new-0"), (0, 4_000, "new-1"))
        tail.cluster.outdate("again")
        async for rows in tail.following(stop):
            assert [row.value for row in rows] == [b"new-0", b"new-1"]
            stop.set()

    asyncio.run(run())


@pytest.mark.slow
@ONLY_OURS
def test_follow_waits_for_a_broker_that_restarts(tmp_path: Path) -> None:
    with running(OURS, tmp_path) as broker:
        asyncio.run(fill(broker.bootstrap_servers, "t", 1, (0, 1_000, "one")))
        with terminal("tail", "t", "-f", "--bootstrap", broker.bootstrap_servers) as shown:
            shown.expect("one\r\n")
            broker.kill()
            shown.expect(f"sharegroup: waiting for {broker.bootstrap_servers}")
            broker.start()
            shown.expect(f"sharegroup: connected to {broker.bootstrap_servers}")
            asyncio.run(fill(broker.bootstrap_servers, "t", 1, (0, 2_000, "two")))
            shown.expect("two\r\n")
            shown.type(CTRL_C)
            assert shown.end()[0] == 0
        assert shown.text.count("one") == 1


@contextmanager
def tailing(bootstrap: str, words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "sharegroup", *at(bootstrap, f"tail {words}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()
