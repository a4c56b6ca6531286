"""Kafka Streams with exactly_once_v2: every word of the input is counted exactly once.

The application (`java/WordCount.java`) groups words through a repartition topic and keeps counts in
a state store with a changelog topic.  It caches nothing, so each word of the input makes one record
of the output, whose value is the count up to it.  The committed output is right if the values of
each word are 1, 2, 3 and so on, without a gap or a repetition, up to the number of its occurrences.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec, ResourceType

from tests.support import confluent_calls, kafka_tools
from tests.support.chosen_broker import KAFKA, LONG_WITH_A_JVM, RunningBroker, chosen, running
from tests.support.confluent_calls import WAIT_SECONDS_MAX, admin, configs, create_topic, offset
from tests.support.kafka_applications import Application, streams_command, why_missing
from tests.support.kafka_tools import SCRIPTS, run_tool

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]
PARTITIONS = 4
WORDS = 500
RARE, OFTEN = "rare", "often"
INPUT, OUTPUT = "lines", "counts"
APPLICATION = "word-count"
REPARTITION = f"{APPLICATION}-words-repartition"
CHANGELOG = f"{APPLICATION}-counts-changelog"
COUNTED_SECONDS_MAX = 240.0
PURGED_SECONDS_MAX = 30.0
REFUSED_SECONDS_MAX = 30.0
REFUSAL = "UnsupportedVersionException: The cluster does not support the STREAMS group protocol"


def lines(count: int) -> Iterator[str]:
    """Two words each, the second one of all lines the same; every hundredth has a third one."""
    for number in range(count):
        third = f" {RARE}" if number % 100 == 0 else ""
        yield f"word{number % WORDS} {OFTEN}{third}"


def occurrences(count: int) -> dict[str, int]:
    """What is to be counted in so many lines, a multiple of 500."""
    assert count % WORDS == 0
    words = {f"word{number}": count // WORDS for number in range(WORDS)}
    return {**words, OFTEN: count, RARE: count // 100}


class Output:
    """The committed output, read while it grows, across restarts of everything."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: dict[str, list[int]] = defaultdict(list)
        self.records = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign(
            [TopicPartition(OUTPUT, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )

    def read_until(self, records: int, application: Application) -> None:
        """Return when so many records are committed."""
        limit = time.monotonic() + COUNTED_SECONDS_MAX
        while self.records < records:
            assert application.running, application.log_tail()
            assert time.monotonic() < limit, (
                f"{self.records} of {records} records within {COUNTED_SECONDS_MAX} s: "
                f"{application.log_tail()}"
            )
            for message in self._consumer.consume(5_000, 0.2):
                if message.error() is None:
                    self.counts[message.key().decode()].append(int(message.value()))
                    self.records += 1

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def broker_with_lines(folder: Path, count: int) -> Iterator[RunningBroker]:
    """A broker of its own, with the input."""
    with running(chosen(), folder / "broker", {}) as broker:
        create_topic(broker.bootstrap_servers, INPUT, partitions=PARTITIONS)
        create_topic(broker.bootstrap_servers, OUTPUT, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
        for number, line in enumerate(lines(count)):
            producer.produce(INPUT, line.encode(), partition=number % PARTITIONS)
            if number % 10_000 == 0:
                producer.flush(WAIT_SECONDS_MAX)
        assert producer.flush(WAIT_SECONDS_MAX) == 0
        yield broker
        confluent_calls.admin.cache_clear()


def word_count(
    broker: RunningBroker, folder: Path, *, state: str = "state", protocol: str = "classic"
) -> Application:
    """A new process of the application, with the state directory of its predecessor."""
    arguments = (broker.bootstrap_servers, APPLICATION, str(folder / state), INPUT, OUTPUT)
    command = streams_command("WordCount", *arguments, protocol)
    return Application(command, folder / "streams.log")


def check_counted(output: Output, count: int) -> None:
    expected = {word: list(range(1, times + 1)) for word, times in occurrences(count).items()}
    wrong = {
        word: values[:10] for word, values in output.counts.items() if values != expected.get(word)
    }
    assert not wrong, "lost, repeated or out of order"
    assert set(output.counts) == set(expected)


def purged(bootstrap: str) -> Sequence[int]:
    """The first offset of each partition of the repartition topic, once all have been purged."""
    limit = time.monotonic() + PURGED_SECONDS_MAX
    while True:
        starts = [
            offset(bootstrap, REPARTITION, OffsetSpec.earliest(), partition)
            for partition in range(PARTITIONS)
        ]
        if all(starts) or time.monotonic() > limit:
            return starts
        time.sleep(0.1)


@LONG_WITH_A_JVM
def test_streams_counts_exactly_once_and_its_topics_have_their_settings(tmp_path: Path) -> None:
    count = 2_000
    with broker_with_lines(tmp_path, count) as broker, word_count(broker, tmp_path) as application:
        output = Output(broker.bootstrap_servers)
        output.read_until(sum(occurrences(count).values()), application)
        assert all(purged(broker.bootstrap_servers)), "Streams deletes what it has counted"
        application.stop()
        output.close()
        check_counted(output, count)
        changelog = configs(broker.bootstrap_servers, ResourceType.TOPIC, CHANGELOG)
        assert changelog["cleanup.policy"] == "compact"
        repartition = configs(broker.bootstrap_servers, ResourceType.TOPIC, REPARTITION)
        assert repartition["cleanup.policy"] == "delete"
        assert repartition["retention.ms"] == "-1"
        listed = admin(broker.bootstrap_servers).list_topics(timeout=WAIT_SECONDS_MAX).topics
        assert len(listed[CHANGELOG].partitions) == len(listed[REPARTITION].partitions) == 4


@LONG_WITH_A_JVM
def test_streams_counts_exactly_once_through_kills(tmp_path: Path) -> None:
    """The application is killed twice, the second time with its local state; the broker once.

    From the first kill on there are two instances, which share the partitions.
    """
    count = 200_000
    total = sum(occurrences(count).values())
    with broker_with_lines(tmp_path, count) as broker:
        output = Output(broker.bootstrap_servers)
        with word_count(broker, tmp_path) as application:
            output.read_until(total // 10, application)
            application.kill()
        with word_count(broker, tmp_path, state="other-state") as other:
            with word_count(broker, tmp_path) as application:
                output.read_until(total * 3 // 10, application)
                broker.kill()
                broker.start()
                output.read_until(total * 6 // 10, application)
                application.kill()
            shutil.rmtree(tmp_path / "state")
            with word_count(broker, tmp_path) as application:
                output.read_until(total, application)
                application.stop()
            other.stop()
        output.close()
        check_counted(output, count)


@LONG_WITH_A_JVM
@pytest.mark.skipif(kafka_tools.why_missing() is not None, reason=str(kafka_tools.why_missing()))
def test_streams_counts_anew_after_a_reset(tmp_path: Path) -> None:
    """The reset tool moves the offsets of the group and deletes the internal topics."""
    count = 1_000
    total = sum(occurrences(count).values())
    with broker_with_lines(tmp_path, count) as broker:
        output = Output(broker.bootstrap_servers)
        with word_count(broker, tmp_path) as application:
            output.read_until(total, application)
            application.stop()
        run_tool(
            SCRIPTS["kafka-streams-application-reset"],
            *("--bootstrap-server", broker.bootstrap_servers, "--application-id", APPLICATION),
            *("--input-topics", INPUT, "--force"),
        )
        topics = admin(broker.bootstrap_servers).list_topics(timeout=WAIT_SECONDS_MAX).topics
        assert {REPARTITION, CHANGELOG}.isdisjoint(topics)
        shutil.rmtree(tmp_path / "state")
        with word_count(broker, tmp_path) as application:
            output.read_until(2 * total, application)
            application.stop()
        output.close()
        expected = occurrences(count)
        assert output.counts == {
            word: 2 * list(range(1, times + 1)) for word, times in expected.items()
        }


@LONG_WITH_A_JVM
@pytest.mark.skipif(chosen() == KAFKA, reason="Kafka serves the protocol")
def test_streams_protocol_is_refused_at_once(tmp_path: Path) -> None:
    """KIP-1071 is not served; the application says so, and does not wait."""
    with (
        broker_with_lines(tmp_path, 500) as broker,
        word_count(broker, tmp_path, protocol="streams") as application,
    ):
        limit = time.monotonic() + REFUSED_SECONDS_MAX
        while REFUSAL not in (found := application.log_tail()):
            assert time.monotonic() < limit, found
            time.sleep(0.1)
