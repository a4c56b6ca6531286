"""The streaming reader's calls in the order in which Spark makes them, on both brokers.

No Spark runs here: what is tested is what the calls mean for the share group.  A reader that
"dies" loses its connections without a word, as with ``kill -9``.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sharegroup.client import AdminClient, NewTopic, ShareConsumer
from sharegroup.client.share.ranges.share_ranges import RECORDS_MAX
from sharegroup.errors import OffsetOutOfRange
from sharegroup.spark import executor_fetch
from sharegroup.spark.options import SourceOptions
from sharegroup.spark.stream_reader import KafkaShareStreamReader, TriggerNotSupported
from tests.integration.spark.conftest import create_topic, produce, set_group_config
from tests.integration.spark.test_executor_read import deleted_until
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.kafka_peer import KafkaPeer, why_missing
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess

LOCK_MS = 1_000
SETTINGS = {
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.heartbeat.interval.ms": "500",  # Kafka assigns with the second heartbeat.
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "1500",
}
NO_LIMIT = ReadMaxRows(RECORDS_MAX)
KAFKA = pytest.param(
    "kafka",
    marks=[
        pytest.mark.kafka,
        pytest.mark.skipif(why_missing() is not None, reason=why_missing() or ""),
        LONG_WITH_A_JVM,
    ],
)
Json = dict[str, Any]


class Broker(NamedTuple):
    bootstrap_servers: str
    kill: Callable[[], None]
    start: Callable[[], None]
    is_ours: bool


@pytest.fixture(scope="module", params=["ours", KAFKA])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    if request.param == "kafka":
        with KafkaPeer(folder, SETTINGS, heap="512m") as kafka:
            yield Broker(kafka.bootstrap_servers, kafka.kill, kafka.start, is_ours=False)
    else:
        with ServeProcess(folder / "data", settings=SETTINGS) as process:
            yield Broker(process.bootstrap_servers, process.kill9, process.start, is_ours=True)


@pytest.fixture(scope="module")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """A reader thinks that the process is its own."""
    on_sigterm = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, on_sigterm)
    executor_fetch.close()


class Query:
    """What Spark keeps of a query: the options, and the last offset that it has logged."""

    def __init__(self, bootstrap: str, topic: str, group: str, outcomes: Path) -> None:
        self.options = SourceOptions(
            topics=(topic,),
            client={"bootstrap_servers": bootstrap},
            group=group,
            outcomes_location=str(outcomes),
        )
        self.limit = NO_LIMIT
        self.start: Json | None = None
        self.end: Json | None = None

    @contextmanager
    def reader(self, *, dies: bool = False) -> Iterator[KafkaShareStreamReader]:
        reader = KafkaShareStreamReader(self.options, "load")
        if self.start is None:
            self.start = reader.initialOffset()
        try:
            yield reader
        finally:
            if dies:
                die(reader)
            else:
                reader.stop()

    def plan(self, reader: KafkaShareStreamReader) -> bool:
        """One trigger up to the logged offset; whether there is a batch."""
        assert self.start is not None
        self.end = json.loads(json.dumps(reader.latestOffset(self.start, self.limit)))
        return self.end != self.start

    def run(self, reader: KafkaShareStreamReader) -> list[bytes]:
        """Read the planned batch, commit it, and go on from its end."""
        assert self.start is not None
        assert self.end is not None
        rows = [
            row["value"]
            for partition in reader.partitions(self.start, self.end)
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        ]
        self.start, self.end = self.end, None
        return rows

    def batch(self, reader: KafkaShareStreamReader) -> list[bytes]:
        """The next batch, waited for."""
        limit = time.monotonic() + HANGING_SECONDS
        while not self.plan(reader):
            assert time.monotonic() < limit, "no batch came"
        return self.run(reader)

    def idle(self, reader: KafkaShareStreamReader) -> None:
        """A trigger that must bring nothing."""
        assert not self.plan(reader), f"a batch came: {self.end}"


def die(reader: KafkaShareStreamReader) -> None:
    """Cut the connections, as the system does for a process that was killed."""
    member = reader._member
    assert member is not None

    async def cut() -> None:
        member._ranges._cluster.close()

    member._thread.run(cut())
    member._thread.leave()


@pytest.fixture
def topic(bootstrap: str) -> str:
    return create_topic(bootstrap, partitions=2)


@pytest.fixture
def query(bootstrap: str, topic: str, group: str, tmp_path: Path) -> Query:
    return Query(bootstrap, topic, group, tmp_path / "outcomes")


def lag(bootstrap: str, group: str) -> int:
    async def ask() -> int:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            listed = (await admin.list_share_group_offsets({group: None}))[group]
            assert isinstance(listed, dict)
            return sum(lag_.lag or 0 for lag_ in listed.values())

    return asyncio.run(ask())


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_batch_is_accepted_when_spark_requests_the_next_offset(
    query: Query, bootstrap: str, topic: str, group: str
) -> None:
    produce(bootstrap, topic, *numbers(0, 100), partition=0)
    with query.reader() as reader:
        assert query.batch(reader) == numbers(0, 100)
        report = reader.reportLatestOffset()
        assert report is not None
        assert (report["accepted"], report["held"]) == (0, 100)
        query.idle(reader)
        assert lag(bootstrap, group) == 0
        report = reader.reportLatestOffset()
        assert report is not None
        assert (report["acquired"], report["accepted"], report["held"]) == (100, 100, 0)


def test_report_has_the_records_of_the_group_by_state(
    query: Query, broker: Broker, topic: str, group: str
) -> None:
    """Apache Kafka does not list them; the report says so, and the query goes on."""
    query.options = replace(query.options, reports_states=True)
    produce(broker.bootstrap_servers, topic, *numbers(0, 100), partition=0)
    with query.reader() as reader:
        assert query.batch(reader) == numbers(0, 100)
        produce(broker.bootstrap_servers, topic, *numbers(100, 130), partition=0)
        limit = time.monotonic() + HANGING_SECONDS
        report: Json | None = None
        while report is None or report["states"] == report["statesCause"]:
            assert time.monotonic() < limit, "no states came"
            time.sleep(0.01)
            report = reader.reportLatestOffset()
        if broker.is_ours:
            counted = {"available": 30, "acquired": 100, "delayed": 0, "archiving": 0}
            assert (report["states"], report["statesCause"]) == (counted, None)
        else:
            assert report["states"] is None
            assert "as Apache Kafka and older brokers do not" in report["statesCause"]


def test_an_empty_first_batch_has_no_tasks(query: Query) -> None:
    with query.reader() as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, NO_LIMIT) == start
        assert reader.partitions(start, start) == []


def test_a_batch_that_died_before_its_end_is_replayed_and_not_shown_again(
    query: Query, bootstrap: str, topic: str, group: str
) -> None:
    produce(bootstrap, topic, *numbers(0, 50), partition=0)
    with query.reader(dies=True) as reader:
        while not query.plan(reader):
            pass
    with query.reader() as reader:
        assert sorted(query.run(reader)) == sorted(numbers(0, 50))
        produce(bootstrap, topic, *numbers(50, 60), partition=0)
        seen: list[bytes] = []
        while len(seen) < 10:
            seen += query.batch(reader)
        assert sorted(seen) == numbers(50, 60)
        wait_for_lag(query, reader, bootstrap, group)
        report = reader.reportLatestOffset()
        assert report is not None
        assert (report["recognised"], report["lostAcknowledgements"]) == (50, 50)


def wait_for_lag(query: Query, reader: KafkaShareStreamReader, bootstrap: str, group: str) -> None:
    """Idle triggers until everything is settled."""
    limit = time.monotonic() + HANGING_SECONDS
    while lag(bootstrap, group):
        assert time.monotonic() < limit, f"lag {lag(bootstrap, group)}"
        query.idle(reader)


def test_a_batch_that_died_after_its_end_is_not_shown_again(
    query: Query, bootstrap: str, topic: str, group: str
) -> None:
    produce(bootstrap, topic, *numbers(0, 50), partition=0)
    with query.reader(dies=True) as reader:
        query.batch(reader)
    with query.reader() as reader:
        wait_for_lag(query, reader, bootstrap, group)


def test_acquired_records_without_a_logged_offset_are_redelivered(
    query: Query, bootstrap: str, topic: str, group: str
) -> None:
    """Spark has logged no offset, so the records and the member id are new to the query."""
    set_group_config(bootstrap, group, "share.session.timeout.ms", "1500")
    produce(bootstrap, topic, *numbers(0, 50), partition=0)
    with query.reader(dies=True) as reader:
        while not query.plan(reader):
            pass
    with query.reader() as reader:
        seen: list[bytes] = []
        while len(seen) < 50:
            seen += query.batch(reader)
        assert sorted(seen) == sorted(numbers(0, 50))


def wait_for_held(reader: KafkaShareStreamReader, expected: int) -> None:
    """Wait until the reader holds so many records."""
    limit = time.monotonic() + HANGING_SECONDS
    while (found := (reader.reportLatestOffset() or {})["held"]) != expected:
        assert time.monotonic() < limit, f"expected {expected} held records, found {found}"


def test_the_next_batch_is_acquired_while_a_full_one_runs(
    query: Query, bootstrap: str, topic: str, group: str
) -> None:
    for first in (0, 10, 20):
        produce(bootstrap, topic, *numbers(first, first + 10), partition=0)
    query.limit = ReadMaxRows(10)
    with query.reader() as reader:
        assert query.batch(reader) == numbers(0, 10)
        wait_for_held(reader, 20)
        assert query.batch(reader) == numbers(10, 20)
        wait_for_held(reader, 20)
        assert query.batch(reader) == numbers(20, 30)
        query.idle(reader)
        assert lag(bootstrap, group) == 0
        report = reader.reportLatestOffset() or {}
        assert (report["acquired"], report["redelivered"], report["held"]) == (30, 0, 0)


def test_records_acquired_ahead_by_a_query_that_died_are_delivered_again(
    query: Query, bootstrap: str, topic: str
) -> None:
    for first in (0, 10, 20):
        produce(bootstrap, topic, *numbers(first, first + 10), partition=0)
    query.limit = ReadMaxRows(10)
    with query.reader(dies=True) as reader:
        seen = query.batch(reader)
        wait_for_held(reader, 20)
    with query.reader() as reader:
        while len(seen) < 30:
            seen += query.batch(reader)
        query.idle(reader)
        assert sorted(seen) == sorted(numbers(0, 30))
        assert (reader.reportLatestOffset() or {})["redelivered"] == 20


@pytest.mark.slow
def test_locks_are_renewed_during_a_long_batch(
    query: Query, bootstrap: str, topic: str, group: str
) -> None:
    """For three lock durations another member fetches records and gets none."""
    set_group_config(bootstrap, group, "share.record.lock.duration.ms", str(LOCK_MS))
    produce(bootstrap, topic, *numbers(0, 20), partition=0)
    with query.reader() as reader:
        query.batch(reader)
        assert consumed(bootstrap, topic, group, seconds=3 * LOCK_MS / 1000) == []
        query.idle(reader)
        assert lag(bootstrap, group) == 0
        report = reader.reportLatestOffset()
        assert report is not None
        assert report["lostAcknowledgements"] == 0


def consumed(bootstrap: str, topic: str, group: str, *, seconds: float) -> list[bytes]:
    """What a plain consumer of the group gets in some time; it accepts it."""

    async def consume() -> list[bytes]:
        values: list[bytes] = []
        limit = time.monotonic() + seconds
        async with ShareConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, fetch_max_wait_ms=100
        ) as consumer:
            while (left := limit - time.monotonic()) > 0:
                values += [record.value for record in await consumer.poll(left)]
            await consumer.commit()
        return values

    return asyncio.run(consume())


def test_stop_releases_held_records_immediately(
    query: Query, bootstrap: str, topic: str, group: str
) -> None:
    produce(bootstrap, topic, *numbers(0, 20), partition=0)
    with query.reader() as reader:
        query.batch(reader)
        began = time.monotonic()
    assert time.monotonic() - began < 2
    other = Query(bootstrap, topic, group, Path("unused"))
    with other.reader() as reader:
        seen: list[bytes] = []
        while len(seen) < 20:
            seen += other.batch(reader)
        assert sorted(seen) == sorted(numbers(0, 20))


def test_two_readers_of_a_group_share_the_records(
    query: Query, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    other = Query(bootstrap, topic, group, tmp_path / "outcomes")
    with query.reader() as first, other.reader() as two:
        query.idle(first)
        other.idle(two)
        produce(bootstrap, topic, *numbers(0, 100))
        seen: list[bytes] = []
        limit = time.monotonic() + HANGING_SECONDS
        while len(seen) < 100:
            assert time.monotonic() < limit, f"{len(seen)} of 100 records came"
            for some, reader in ((query, first), (other, two)):
                if some.plan(reader):
                    seen += some.run(reader)
        assert sorted(seen) == sorted(numbers(0, 100))


def test_a_plain_consumer_shares_the_group_with_a_query(
    query: Query, bootstrap: str, topic: str, group: str
) -> None:
    with query.reader() as reader:
        query.idle(reader)
        produce(bootstrap, topic, *numbers(0, 100))
        seen: list[bytes] = []
        limit = time.monotonic() + HANGING_SECONDS
        while len(seen) < 100:
            assert time.monotonic() < limit, f"{len(seen)} of 100 records came"
            seen += consumed(bootstrap, topic, group, seconds=0.2)
            if query.plan(reader):
                seen += query.run(reader)
        assert sorted(seen) == sorted(numbers(0, 100))


def test_a_changed_group_is_refused(query: Query, bootstrap: str, topic: str) -> None:
    other = Query(bootstrap, topic, "another", Path("unused"))
    with query.reader(), other.reader() as reader, pytest.raises(ValueError, match="belongs to"):
        reader.latestOffset(query.start or {}, NO_LIMIT)


def test_trigger_once_is_refused_with_the_reason(query: Query) -> None:
    with query.reader() as reader, pytest.raises(TriggerNotSupported, match="availableNow=True"):
        reader.latestOffset(query.start or {}, ReadAllAvailable())


def test_available_now_ends_by_itself(query: Query, bootstrap: str, topic: str, group: str) -> None:
    produce(bootstrap, topic, *numbers(0, 50), partition=0)
    with query.reader() as reader:
        reader.prepareForTriggerAvailableNow()
        seen: list[bytes] = []
        while query.plan(reader):
            seen += query.run(reader)
        assert sorted(seen) == sorted(numbers(0, 50))
        assert lag(bootstrap, group) == 0


@pytest.mark.slow
def test_a_batch_during_which_the_broker_restarts_is_not_shown_again(
    broker: Broker, query: Query, topic: str
) -> None:
    """Its locks go with the broker; its records come back and are recognised."""
    produce(broker.bootstrap_servers, topic, *numbers(0, 50), partition=0)
    with query.reader() as reader:
        assert query.batch(reader) == numbers(0, 50)
        broker.kill()
        query.idle(reader)
        broker.start()
        limit = time.monotonic() + HANGING_SECONDS
        while (reader.reportLatestOffset() or {})["recognised"] < 50:
            assert time.monotonic() < limit, f"not all came back: {reader.reportLatestOffset()}"
            query.idle(reader)
        assert (reader.reportLatestOffset() or {})["lostAcknowledgements"] == 50
        produce(broker.bootstrap_servers, topic, b"after", partition=1)
        assert query.batch(reader) == [b"after"]


def planned(query: Query, reader: KafkaShareStreamReader) -> None:
    """Plan the next batch."""
    limit = time.monotonic() + HANGING_SECONDS
    while not query.plan(reader):
        assert time.monotonic() < limit, "no batch came"


def test_tasks_on_the_drivers_machine_need_no_broker_that_has_sent_the_records(
    broker: Broker, query: Query, topic: str
) -> None:
    """Our own broker sends none to the driver, so the tasks wait for it."""
    produce(broker.bootstrap_servers, topic, *numbers(0, 50), partition=0)
    with query.reader() as reader:
        planned(query, reader)
        [partition] = reader.partitions(query.start, query.end)
        [part] = partition.parts
        assert (part.kept is None) is part.is_listed is broker.is_ours
        broker.kill()
        timer = threading.Timer(1.0 if broker.is_ours else 5.0, broker.start)
        timer.start()
        try:
            assert query.run(reader) == numbers(0, 50)
        finally:
            timer.join()


def test_records_deleted_after_the_acquisition_end_the_query_or_are_counted(
    broker: Broker, query: Query, topic: str, group: str
) -> None:
    """Without ``failOnDataLoss`` they are gaps, and counted; if kept, they are rows."""
    bootstrap = broker.bootstrap_servers
    produce(bootstrap, topic, *numbers(0, 50), partition=0)
    with query.reader(dies=True) as reader:
        planned(query, reader)
        if not broker.is_ours:
            pytest.skip("the driver has received the records")
        deleted_until(bootstrap, topic, 20)
        with pytest.raises(OffsetOutOfRange, match="up to offset 20 no longer exist"):
            query.run(reader)
    query.options = replace(query.options, fail_on_data_loss=False)
    with query.reader() as reader:
        assert query.run(reader) == numbers(20, 50)
        query.idle(reader)  # Accepted, or carried: the locks ended with the first reader.
        produce(bootstrap, topic, *numbers(50, 80), partition=0)
        planned(query, reader)
        deleted_until(bootstrap, topic, 70)
        assert query.run(reader) == numbers(70, 80)
        query.idle(reader)
        report = reader.reportLatestOffset() or {}
        assert (report["gone"], report["carried"], report["lostAcknowledgements"]) == (20, 0, 50)
        assert lag(bootstrap, group) == 0


def test_recreated_topic_is_another_topic(query: Query, bootstrap: str, topic: str) -> None:
    """Equal offsets of the same name are new records; offsets in doubt are forgotten."""
    produce(bootstrap, topic, *numbers(0, 5), partition=0)
    with query.reader() as reader:
        assert query.batch(reader) == numbers(0, 5)
        make_again(bootstrap, topic)
        produce(bootstrap, topic, *numbers(5, 10), partition=0)
        assert query.batch(reader) == numbers(5, 10)
        limit = time.monotonic() + HANGING_SECONDS
        while (reader.reportLatestOffset() or {})["carried"]:
            assert time.monotonic() < limit, "the old topic's records are still carried"
            query.idle(reader)


def make_again(bootstrap: str, topic: str) -> None:
    async def again() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            assert await admin.delete_topics([topic]) == {topic: None}
            limit = time.monotonic() + HANGING_SECONDS
            while (await admin.create_topics([NewTopic(topic, 2)]))[topic] is not None:
                assert time.monotonic() < limit, f"{topic} can't be made again"

    asyncio.run(again())
