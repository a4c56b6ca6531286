"""``kill -9`` of a broker, 20 times, while clients of three kinds work on it.

A confluent producer (idempotent, acks=all), three confluent share consumers (two explicit, one
implicit), our own share consumer, and a member that speaks the protocol by hand and keeps
nothing in between.  The broker is killed whenever enough was settled since its last start and
comes back on the same data.  At the end everything that was confirmed must be so, every
record is accepted, rejected or archived, and the lag is 0 (`kill9_history`).
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from kio.schema.describe_share_group_offsets.v1 import request as describe_offsets

from sharegroup import client
from sharegroup.errors import KafkaError
from tests.faults.in_process import ACCEPT, REJECT, RELEASE, ShareMember
from tests.faults.kill9_history import Delivered, Event, Produced, Sent, Settled, problems
from tests.faults.raw_connection import RawConnection
from tests.faults.served import ServedBroker
from tests.support.confluent_calls import admin, create_topic, read_partition, set_group
from tests.support.kafka_peer import free_ports
from tests.support.limits import ALL_DAMAGE, HANGING_SECONDS
from tests.support.processes import ServeProcess

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 3
BACKLOG_MAX = 1_500
MEMBERS = {"explicit 1", "explicit 2", "implicit", "ours", "by hand"}
KILLS = 20 if ALL_DAMAGE else 4
PROGRESS_SECONDS_MAX = HANGING_SECONDS
DRAIN_SECONDS_MAX = HANGING_SECONDS
RECONNECT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,  # That a broker is away is no news here.
}


@dataclass
class Trial:
    """One broker, its clients, and what they saw."""

    broker: ServeProcess
    events: list[Event] = field(default_factory=list)
    settled_count: int = 0
    produced_count: int = 0
    lives: int = 0
    """Odd while the broker is down."""
    producing: threading.Event = field(default_factory=threading.Event)
    consuming: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)

    def start(self, *targets: Callable[[], None]) -> list[threading.Thread]:
        def run(target: Callable[[], None]) -> None:
            try:
                target()
            except BaseException as error:  # noqa: BLE001  Raised by `wait_for`.
                self.failures.append(error)

        threads = [
            threading.Thread(target=run, args=(target,), name=str(target)) for target in targets
        ]
        for thread in threads:
            thread.start()
        return threads

    def wait_for(self, condition: Callable[[], bool], *, seconds: float, what: str) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            if self.failures:
                raise self.failures[0]
            assert time.monotonic() < limit, f"no {what} in {seconds} s"
            self.pause(0.02)

    def pause(self, seconds: float) -> None:
        """Leave the processor to the others."""
        threading.Event().wait(seconds)

    def kill(self) -> None:
        self.lives += 1
        admin.cache_clear()
        self.broker.kill9()
        self.broker.start()
        self.lives += 1

    def delivered(self, records: Iterable[Delivered]) -> None:
        self.events += records

    def settled(self, member: str, where: Iterable[tuple[int, int]]) -> None:
        events = [Settled(member, *offset) for offset in where]
        self.events += events
        self.settled_count += len(events)

    def sent(self, member: str, where: Iterable[tuple[int, int]]) -> None:
        self.events += [Sent(member, *offset) for offset in where]

    # Clients, each in a thread of its own.

    def produce(self) -> None:
        """Numbers, as long as not too many of them wait."""
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                **RECONNECT,
            }
        )
        number = 0
        while self.producing.is_set():
            producer.poll(0)
            if number - self.settled_count > BACKLOG_MAX:
                producer.poll(0.01)
                continue
            producer.produce(
                TOPIC,
                value=b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=self._produced,
            )
            number += 1
        assert producer.flush(DRAIN_SECONDS_MAX) == 0, "records are still queued"
        assert self.produced_count == number

    def _produced(self, error: object, message: Message) -> None:
        assert error is None, error
        self.events.append(Produced(message.value(), message.partition(), message.offset()))
        self.produced_count += 1

    def consume(self, name: str, *, explicit: bool) -> None:
        """A confluent share consumer."""
        chance = random.Random(name)
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit" if explicit else "implicit",
                **RECONNECT,
            }
        )
        consumer.subscribe([TOPIC])
        try:
            while self.consuming.is_set():
                try:
                    polled = consumer.poll(0.1)
                except KafkaException:
                    continue  # The broker is away; the next poll tries again.
                messages = [message for message in polled if message.error() is None]
                kept = {(message.partition(), message.offset()) for message in messages}
                self.delivered(_from_confluent(name, message) for message in messages)
                if explicit:
                    kept -= self._acknowledge(consumer, messages, chance)
                self.sent(name, kept)
                try:
                    answers = consumer.commit_sync(5.0)
                except KafkaException:
                    continue  # In doubt.
                good = {where.partition for where, error in answers.items() if error is None}
                self.settled(name, [where for where in kept if where[0] in good])
        finally:
            consumer.close()

    def _acknowledge(
        self, consumer: ShareConsumer, messages: list[Message], chance: random.Random
    ) -> set[tuple[int, int]]:
        """Choose for each record; the released ones."""
        released = set()
        for message in messages:
            kind = chance.choices(list(AcknowledgeType), (80, 10, 10))[0]
            consumer.acknowledge(message, kind)
            if kind == AcknowledgeType.RELEASE:
                released.add((message.partition(), message.offset()))
        return released

    def consume_with_ours(self) -> None:
        asyncio.run(self._consume_with_ours("ours"))

    async def _consume_with_ours(self, name: str) -> None:
        chance = random.Random(name)
        async with client.ShareConsumer(
            TOPIC,
            bootstrap_servers=self.broker.bootstrap_servers,
            group_id=GROUP,
            share_acknowledgement_mode="explicit",
        ) as consumer:
            while self.consuming.is_set():
                try:
                    records = await consumer.poll(0.1)
                except KafkaError:
                    continue  # The broker is away; the next poll tries again.
                kept = set()
                for record in records:
                    self.delivered(
                        [
                            Delivered(
                                name,
                                record.partition,
                                record.offset,
                                record.value or b"",
                                record.delivery_count,
                                is_fresh=False,
                            )
                        ]
                    )
                    if chance.random() < 0.1:
                        record.release()
                    else:
                        record.accept()
                        kept.add((record.partition, record.offset))
                self.sent(name, kept)
                try:
                    answers = await consumer.commit(5.0)
                except KafkaError:
                    continue  # In doubt.
                good = {where.partition for where, error in answers.items() if error is None}
                self.settled(name, [where for where in kept if where[0] in good])

    def consume_by_hand(self) -> None:
        with ServedBroker(self.broker) as asks:
            asyncio.run(self._consume_by_hand(asks, "by hand"))

    async def _consume_by_hand(self, asks: ServedBroker, name: str) -> None:
        chance = random.Random(name)
        member = ShareMember(GROUP, "by-hand", TOPIC, PARTITIONS, connection_id=1)
        rounds = 0
        while self.consuming.is_set():
            lives = self.lives
            try:
                if rounds % 50 == 0 or not member.member_epoch:
                    await member.heartbeat(asks)
                rounds += 1
                taken, _ = await member.fetch(asks, records_max=20)
            except OSError:
                member.broker_restarted()
                await asyncio.sleep(0.02)  # The broker is away.
                continue
            if not taken:
                await asyncio.sleep(0.02)  # The others' turn.
                continue
            fresh = lives == self.lives and lives % 2 == 0
            self.delivered(
                Delivered(
                    name, *record[:2], record.value or b"", record.delivery_count, is_fresh=fresh
                )
                for record in taken
            )
            acks: dict[int, list[tuple[int, int]]] = {}
            for record in sorted(taken):
                kind = chance.choices((ACCEPT, RELEASE, REJECT), (80, 10, 10))[0]
                acks.setdefault(record.partition, []).append((record.offset, kind))
            kept = [(p, o) for p, own in acks.items() for o, kind in own if kind != RELEASE]
            self.sent(name, kept)
            try:
                answers = await member.acknowledge(asks, acks)
            except OSError:
                member.broker_restarted()
                continue
            self.settled(name, [where for where in kept if answers[where[0]] == 0])

    # What is left at the end.

    def lag(self) -> int:
        wanted = describe_offsets.DescribeShareGroupOffsetsRequestTopic(
            topic_name=TOPIC, partitions=tuple(range(PARTITIONS))
        )
        group = describe_offsets.DescribeShareGroupOffsetsRequestGroup(
            group_id=GROUP, topics=(wanted,)
        )
        with RawConnection(self.broker.port) as connection:
            answer = connection.ask(
                describe_offsets.DescribeShareGroupOffsetsRequest(groups=(group,))
            )
        return sum(partition.lag for partition in answer.groups[0].topics[0].partitions)

    def logs(self) -> dict[int, list[bytes]]:
        """Every value of every partition."""
        logs = {}
        for partition in range(PARTITIONS):
            consumer = Consumer(
                {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "none"}
            )
            where = TopicPartition(TOPIC, partition)
            _, end = consumer.get_watermark_offsets(where, timeout=HANGING_SECONDS)
            consumer.close()
            read = read_partition(
                self.broker.bootstrap_servers, TOPIC, count=end, partition=partition
            )
            assert [message.offset() for message in read] == list(range(end))
            logs[partition] = [message.value() or b"" for message in read]
        return logs


@pytest.mark.parametrize(("durability", "kills"), [("fsync", KILLS), ("os", KILLS // 4)])
def test_nothing_confirmed_is_lost_or_done_twice(
    tmp_path: Path, durability: str, kills: int
) -> None:
    chance = random.Random(durability)
    (port,) = free_ports(1)
    with ServeProcess(tmp_path / "data", port=port, durability=durability) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        set_group(broker.bootstrap_servers, GROUP, auto_offset_reset="earliest")
        trial = Trial(broker)
        trial.producing.set()
        trial.consuming.set()
        producer = trial.start(trial.produce)
        consumers = trial.start(
            lambda: trial.consume("explicit 1", explicit=True),
            lambda: trial.consume("explicit 2", explicit=True),
            lambda: trial.consume("implicit", explicit=False),
            trial.consume_with_ours,
            trial.consume_by_hand,
        )
        try:
            for _ in range(kills):
                enough = trial.settled_count + chance.randrange(50, 1_000)
                trial.wait_for(
                    lambda enough=enough: trial.settled_count >= enough,
                    seconds=PROGRESS_SECONDS_MAX,
                    what="progress",
                )
                trial.kill()
            # Few kills are over soon, on a busy machine before each member has had records.
            trial.wait_for(
                lambda: members_of(trial) >= MEMBERS,
                seconds=PROGRESS_SECONDS_MAX,
                what="an acknowledgement of every member",
            )
            trial.producing.clear()
            _join(producer, trial)
            trial.wait_for(lambda: trial.lag() == 0, seconds=DRAIN_SECONDS_MAX, what="end")
        finally:
            trial.producing.clear()
            trial.consuming.clear()
            _join([*producer, *consumers], trial)
        assert trial.failures == []
        assert list(problems(trial.events, trial.logs(), trial.lag())) == []
        admin.cache_clear()
    assert members_of(trial) == MEMBERS


def members_of(trial: Trial) -> set[str]:
    """Return the members whose acknowledgements were confirmed."""
    return {event.member for event in list(trial.events) if isinstance(event, Settled)}


def _join(threads: list[threading.Thread], trial: Trial) -> None:
    for thread in threads:
        thread.join(DRAIN_SECONDS_MAX)
        assert not thread.is_alive(), f"{thread.name} does not end; {trial.failures}"


def _from_confluent(member: str, message: Message) -> Delivered:
    return Delivered(
        member,
        message.partition(),
        message.offset(),
        message.value() or b"",
        message.delivery_count() or 0,
        is_fresh=False,
    )


# The checker itself

GOOD: tuple[Event, ...] = (
    Produced(b"a", 0, 0),
    Produced(b"b", 0, 1),
    Delivered("one", 0, 0, b"a", 1, is_fresh=True),
    Delivered("one", 0, 1, b"b", 1, is_fresh=True),
    Sent("one", 0, 0),
    Settled("one", 0, 0),
    Delivered("two", 0, 1, b"b", 2, is_fresh=True),
    Sent("two", 0, 1),
)


def test_a_history_that_may_be_has_no_problems() -> None:
    assert list(problems(GOOD, {0: [b"a", b"b"]}, 0)) == []


@pytest.mark.parametrize(
    ("events", "log", "lag", "problem"),
    [
        (GOOD, [b"a"], 0, "is lost"),
        (GOOD, [b"a", b"b", b"a"], 0, "2 times in the log"),
        ((*GOOD, Delivered("two", 0, 0, b"a", 2, is_fresh=True)), None, 0, "came after"),
        ((*GOOD, Settled("two", 0, 0)), None, 0, "came after"),
        ((*GOOD, Delivered("two", 0, 1, b"x", 2, is_fresh=True)), None, 0, "another value"),
        ((*GOOD, Delivered("two", 0, 1, b"b", 6, is_fresh=True)), None, 0, "impossible"),
        (GOOD, [b"a", b"b", b"c"], 0, "neither settled nor given up"),
        (GOOD, None, 1, "lags by 1"),
    ],
)
def test_a_falsified_history_has_problems(
    events: tuple[Event, ...], log: list[bytes] | None, lag: int, problem: str
) -> None:
    logs = {0: [b"a", b"b"] if log is None else log}
    if problem == "is lost":
        events = tuple(event for event in events if isinstance(event, Produced))
    found = list(problems(events, logs, lag))
    assert any(problem in line for line in found), found
