"""``sharegroup groups inspect``: the durable state on any broker, and the live state of ours."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sharegroup.cli.main import main
from sharegroup.client import (
    AcknowledgeType,
    AdminClient,
    NewTopic,
    ShareConsumer,
    TopicPartition,
)
from sharegroup.errors import UnsupportedVersion
from sharegroup.testing import TestBroker, run_broker
from tests.integration.cli.conftest import RECORDS, Printed, Run, produce, set_up
from tests.integration.cli.piping import watched
from tests.integration.cli.terminal import terminal
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.limits import HANGING_SECONDS

INSPECT = ("groups", "inspect")
only_ours = pytest.mark.skipif(chosen() == KAFKA, reason="Apache Kafka has no such page")


@contextmanager
def half_settled(bootstrap: str, topic: str) -> Iterator[None]:
    """A member of the group that accepts offset 4, releases 5, rejects 6 and holds 7.

    Offsets 0 to 3 are settled before, and 5 is acquired again if it asks for more, so it does not.
    """
    ready, stop = threading.Event(), threading.Event()

    async def work() -> None:
        options = {"bootstrap_servers": bootstrap, "share_acknowledgement_mode": "explicit"}
        async with ShareConsumer(topic, group_id=topic, **options) as consumer:  # type: ignore[arg-type]
            records = []
            while len(records) < RECORDS:
                records += await consumer.poll(timeout=5)
            by_offset = {record.offset: record for record in records}
            consumer.acknowledge(by_offset[4], AcknowledgeType.ACCEPT)
            consumer.acknowledge(by_offset[5], AcknowledgeType.RELEASE)
            consumer.acknowledge(by_offset[6], AcknowledgeType.REJECT)
            await consumer.commit()
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        assert ready.wait(HANGING_SECONDS), "the member got no records"
        yield
    finally:
        stop.set()
        thread.join()


def runs_of(printed: Printed) -> list[tuple[object, ...]]:
    (row,) = printed.rows
    return [
        (run["first_offset"], run["last_offset"], run["state"], run["delivery_count"])
        for run in row["runs"]
    ]


def test_durable_state_shows_acquired_records_as_available(
    consumed: str, run: Run, bootstrap: str
) -> None:
    asyncio.run(produce(bootstrap, consumed))
    with half_settled(bootstrap, consumed):
        printed = run(f"groups inspect {consumed} {consumed}:0 --json --durable")
        lines = run(f"groups inspect --group {consumed} --durable").lines
    (row,) = printed.rows
    assert (row["topic"], row["partition"], row["high_watermark"]) == (consumed, 0, 8)
    assert runs_of(printed)[-2:] == [(5, 5, "available", 1), (6, 6, "archived", 1)]
    assert all(settled[2] == "acknowledged" for settled in runs_of(printed)[:-2])
    assert row["end_offset"] == 7
    assert [consumed, "0", "5", "5", "1", "available", "1", "-", "-"] in lines


def test_tail_of_a_group_on_kafka_shows_what_is_durable(
    bootstrap: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """There a record that a member holds looks as if nobody had it."""
    on_kafka = chosen() == KAFKA
    set_up(bootstrap, "tailed")
    asyncio.run(produce(bootstrap, "tailed"))
    with half_settled(bootstrap, "tailed"):
        tail = ("tail", "tailed", "--group", "tailed", "--bootstrap", bootstrap)
        printed = ended(capfd, *tail, "--json")
        acquired = ended(capfd, *tail, "--state", "acquired")
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [(row["offset"], row["state"], row["value"]) for row in found] == [
        (5, "available", "x"),
        (7, "available" if on_kafka else "acquired", "x"),
    ]
    assert (found[1]["member_id"] is None) is on_kafka
    assert ("__share_group_state" in printed.err) is on_kafka, printed.err
    assert ("has no such records: acquired" in acquired.out) is on_kafka


@pytest.mark.skipif(chosen() != KAFKA, reason="our broker lists runs")
def test_apache_kafka_lists_no_runs(consumed: str, bootstrap: str) -> None:
    async def ask() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.list_share_group_runs(consumed, {TopicPartition(consumed, 0): 0})

    with pytest.raises(UnsupportedVersion, match="does not list the runs"):
        asyncio.run(ask())


@only_ours
def test_coordinator_lists_members_and_locks(consumed: str, run: Run, bootstrap: str) -> None:
    asyncio.run(produce(bootstrap, consumed))
    with half_settled(bootstrap, consumed):
        printed = run(f"groups inspect {consumed} {consumed}:0 --json")
        lines = run(f"groups inspect {consumed} --max-runs 1").lines
    assert runs_of(printed) == [
        (5, 5, "available", 1),
        (6, 6, "archived", 1),
        (7, 7, "acquired", 1),
    ]
    (row,) = printed.rows
    assert len(row["runs"][2]["member_id"]) > 10
    assert 0 < row["runs"][2]["lock_ms_left"] <= 30_000
    assert lines[-1][:4] == ["...", "2", "more", "runs;"]


def test_terminal_says_what_a_run_is_above_the_heading_of_the_runs(
    consumed: str, bootstrap: str
) -> None:
    asyncio.run(produce(bootstrap, consumed))
    with (
        half_settled(bootstrap, consumed),
        terminal("groups", "inspect", consumed, "--bootstrap", bootstrap) as shown,
    ):
        shown.end()
    what = shown.lines.index("A run is a range of offsets with one state and one delivery count.")
    assert shown.lines[0].split()[0] == "PARTITION", "the heading of the lines of marks"
    assert shown.lines[what + 1].split()[0] == "TOPIC", "the heading of the table of runs"


def test_settled_group_has_no_runs(consumed: str, run: Run) -> None:
    (row,) = run(f"groups inspect {consumed} --json").rows
    assert (row["group"], row["run_count"], row["high_watermark"]) == (consumed, 0, 4)
    assert run(f"groups inspect {consumed}").out == "There are no runs.\n"


def test_unknown_group_topic_or_partition_is_named(consumed: str, run: Run) -> None:
    for words, says in (
        ("nobody", "GroupIdNotFound: there is no group 'nobody'"),
        (f"{consumed} other", f"has no share partition other; its topics are: {consumed}"),
        (f"{consumed} {consumed}:9", f"has no share partition {consumed}:9"),
    ):
        refused = run(f"groups inspect {words}")
        assert (refused.code, says in refused.err) == (1, True), refused.err


@pytest.mark.parametrize(
    "words", ["", "a b c", "a b:x", "a :1", "a --durable --metrics h", "a --metrics ftp://h"]
)
def test_other_arguments_are_a_misuse(words: str, run: Run) -> None:
    refused = run(f"groups inspect {words}")
    assert (refused.code, "expected" in refused.err) == (2, True), refused.err


@pytest.fixture
def observed() -> Iterator[tuple[TestBroker, str]]:
    """A broker with metrics, and a group of four settled records."""
    with run_broker({"sharegroup.metrics.port": "0"}) as broker:
        assert broker.running.metrics is not None
        set_up(broker.bootstrap_servers, "billing")
        yield broker, f"http://127.0.0.1:{broker.running.metrics.port}"


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> Printed:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    printed = capsys.readouterr()
    return Printed(int(end.value.code or 0), printed.out, printed.err)


@only_ours
def test_live_state_shows_members_and_locks(
    observed: tuple[TestBroker, str], capsys: pytest.CaptureFixture[str]
) -> None:
    broker, url = observed
    asyncio.run(produce(broker.bootstrap_servers, "billing"))
    with half_settled(broker.bootstrap_servers, "billing"):
        printed = ended(capsys, *INSPECT, "billing", "billing:0", "--metrics", url, "--json")
        few = ended(capsys, *INSPECT, "billing", "--metrics", f"{url}/metrics", "--max-runs", "1")
    assert runs_of(printed) == [
        (5, 5, "available", 1),
        (6, 6, "archived", 1),
        (7, 7, "acquired", 1),
    ]
    (row,) = printed.rows
    assert row["runs"][0]["member_id"] is None
    assert len(row["runs"][2]["member_id"]) > 10
    assert 0 < row["runs"][2]["lock_ms_left"] <= 30_000
    assert few.out.splitlines()[2] == "... 2 more runs; --max-runs shows more of them"


@only_ours
def test_group_without_members_is_not_in_the_memory_of_the_broker(
    observed: tuple[TestBroker, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, url = observed
    printed = ended(capsys, *INSPECT, "billing", "billing:9", "--metrics", url)
    assert (printed.code, "no such share partition in the memory" in printed.out) == (0, True)
    refused = ended(capsys, *INSPECT, "nobody", "--metrics", url)
    assert refused.err == f"Error: {url}: there is no share group 'nobody' on this broker\n"


def test_port_without_a_broker_is_named_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = ended(capsys, *INSPECT, "billing", "--metrics", "127.0.0.1:1")
    assert refused.code == 1
    assert "no response from http://127.0.0.1:1" in refused.err
    assert "--metrics-port" in refused.err


@only_ours
def test_broker_without_state_of_share_groups_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A topic alone: neither a group nor the topic of their state exists."""
    with run_broker() as broker:

        async def make_topic() -> None:
            async with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
                assert await admin.create_topics([NewTopic("orders", 1)]) == {"orders": None}

        asyncio.run(make_topic())
        refused = ended(capsys, *INSPECT, "billing", "--bootstrap", broker.bootstrap_servers)
    assert (refused.code, refused.err.startswith("Error: GroupIdNotFound")) == (1, True)


@only_ours
def test_watch_without_a_terminal_prints_a_line_of_json_each_time(
    observed: tuple[TestBroker, str],
) -> None:
    """In a process of its own, because it ends only with a signal."""
    broker, _ = observed
    words = ("groups", "inspect", "billing", "--bootstrap", broker.bootstrap_servers)
    lines = asyncio.run(watched(*words, "--watch", "0.1", lines=2))
    assert [line["rows"][0]["topic"] for line in lines] == ["billing", "billing"]
