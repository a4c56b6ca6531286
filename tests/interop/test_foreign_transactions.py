"""Transactions of five clients: committed or aborted as a whole, in spite of fencing and crashes.

Every test is the same for all clients (`transactors.py`) and passes on Apache Kafka too.  The
records are read by confluent's consumer with isolation level ``read_committed``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.interop.line_programs import why_no_go, why_no_java
from tests.interop.transactors import (
    LineTransactors,
    TransactionalProducer,
    TransactionRefused,
    Transactors,
    transactors,
)
from tests.support import confluent_calls, kafka_tools
from tests.support.chosen_broker import KAFKA, LONG_WITH_A_JVM, OURS, RunningBroker, chosen, running
from tests.support.confluent_calls import admin, create_topic, offset, produce
from tests.support.kafka_tools import SCRIPTS, run_tool

pytestmark = LEAVES_SOCKETS
WAIT_SECONDS = 60.0
TIMEOUT_MS = 2_000
PARTITIONS = 3
NO_OFFSET = -1001
"""What librdkafka says of a group that has committed no offset."""
FENCED = {
    *("_FENCED", "ProducerFencedException", "InvalidProducerEpochException"),
    *("ProducerFenced", "ProducerFencedError", "InvalidProducerEpochError"),
    *("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"),
}
"""The clients' names of PRODUCER_FENCED and INVALID_PRODUCER_EPOCH."""


def skipped(why: str | None) -> pytest.MarkDecorator:
    return pytest.mark.skipif(why is not None, reason=str(why))


PYTHON_CLIENTS = ["confluent", "kafka-python", "aiokafka"]
OTHER_CLIENTS = [
    pytest.param("java", marks=[pytest.mark.kafka, skipped(why_no_java()), LONG_WITH_A_JVM]),
    pytest.param("franz-go", marks=[skipped(why_no_go()), LONG_WITH_A_JVM]),
]
CLIENTS = [*PYTHON_CLIENTS, *OTHER_CLIENTS]
KNOW_VERSION_2 = ("java", "franz-go")
"""The clients with the protocol of KIP-890."""
TIMEOUT_AFTER_CRASH_MS = TIMEOUT_MS if chosen() == OURS else 20_000
"""Apache Kafka tries to end a timed-out transaction once: if it fails, because the node has not
started completely, the transition stays pending (TransactionCoordinator), and the transaction open.
"""

SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""How often Apache Kafka looks for transactions that have timed out; ours needs no such setting."""


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def producers(client: str, bootstrap: str) -> Iterator[Transactors]:
    with transactors(client, bootstrap) as opened:
        yield opened


def check_committed(bootstrap: str, topic: str, expected: list[bytes], partitions: int = 1) -> None:
    """The committed records of the partitions are these, as soon as the markers are written.

    A commit is answered when it is decided, which is before.
    """
    limit = time.monotonic() + WAIT_SECONDS
    while (found := committed(bootstrap, topic, partitions)) != expected:
        assert set(found) <= set(expected), "no record of an aborted transaction"
        assert time.monotonic() < limit, f"committed are {found}, expected {expected}"


def committed(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes]:
    """The committed records of the partitions, sorted, up to their last stable offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    )
    values: list[bytes] = []
    ended: set[int] = set()
    limit = time.monotonic() + WAIT_SECONDS
    try:
        while len(ended) < partitions:
            assert time.monotonic() < limit, f"no end of {topic}: {values}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return sorted(values)
    finally:
        consumer.close()


def wait_until_stable(bootstrap: str, topic: str, end: int, partition: int = 0) -> None:
    """Return when no open transaction is below the end offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
    )
    limit = time.monotonic() + WAIT_SECONDS
    try:
        while (found := stable_offset(consumer, topic, partition)) < end:
            assert time.monotonic() < limit, f"the last stable offset is {found}, expected {end}"
    finally:
        consumer.close()


def stable_offset(consumer: Consumer, topic: str, partition: int) -> int:
    where = TopicPartition(topic, partition)
    found: int = consumer.get_watermark_offsets(where, timeout=WAIT_SECONDS)[1]
    return found


def group_offset(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_SECONDS)
        committed_offset: int = found.offset
        return committed_offset
    finally:
        consumer.close()


def write(producer: TransactionalProducer, topic: str, *values: bytes) -> None:
    for value in values:
        producer.send(topic, 0, value)
    producer.flush()


def test_transaction_is_committed_or_aborted_in_all_partitions(
    producers: Transactors, bootstrap: str, topic: str
) -> None:
    other = f"{topic}.other"
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    create_topic(bootstrap, other)
    producer = producers.open(topic)
    for number in range(6):
        producer.begin()
        kind = "committed" if number % 2 == 0 else "aborted"
        for partition in range(PARTITIONS):
            producer.send(topic, partition, f"{kind}-{number}-{partition}".encode())
        producer.send(other, 0, f"{kind}-{number}".encode())
        producer.flush()
        producer.commit() if number % 2 == 0 else producer.abort()
    producer.close()
    values = [
        f"committed-{number}-{partition}".encode()
        for number in (0, 2, 4)
        for partition in range(PARTITIONS)
    ]
    check_committed(bootstrap, topic, values, PARTITIONS)
    check_committed(bootstrap, other, [b"committed-0", b"committed-2", b"committed-4"])
    for partition in range(PARTITIONS):
        # Six records and six markers.
        wait_until_stable(bootstrap, topic, 12, partition)
        assert offset(bootstrap, topic, OffsetSpec.latest(), partition) == 12


def test_offset_of_a_group_is_committed_with_the_transaction(
    producers: Transactors, client: str, bootstrap: str, topic: str, group: str
) -> None:
    if client == "franz-go":
        pytest.skip(
            "franz-go commits offsets in its sessions alone; the test of copies is for that"
        )
    create_topic(bootstrap, topic)
    producer = producers.open(topic)
    producer.begin()
    write(producer, topic, b"first")
    producer.send_offset(group, topic, 0, 7)
    producer.abort()
    assert group_offset(bootstrap, group, topic) == NO_OFFSET
    producer.begin()
    write(producer, topic, b"second")
    producer.send_offset(group, topic, 0, 9)
    producer.commit()
    assert group_offset(bootstrap, group, topic) == 9
    check_committed(bootstrap, topic, [b"second"])
    producer.close()


def test_producer_that_names_no_member_commits_offsets_of_a_group_with_members(
    producers: Transactors, client: str, bootstrap: str, topic: str, group: str
) -> None:
    """As clients did before KIP-447, and aiokafka does: the transactional id alone fences them."""
    if client == "franz-go":
        pytest.skip("franz-go commits offsets in its sessions alone")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"read by the member"])
    member = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.subscribe([topic])
    assert member.poll(WAIT_SECONDS) is not None, "it has the partition"
    producer = producers.open(topic)
    producer.begin()
    producer.send_offset(group, topic, 0, 1)
    producer.commit()
    assert group_offset(bootstrap, group, topic) == 1
    producer.close()
    member.close()


def test_second_producer_fences_the_first_and_aborts_its_transaction(
    producers: Transactors, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    first = producers.open(topic)
    first.begin()
    write(first, topic, b"of the first")
    second = producers.open(topic)
    with pytest.raises(TransactionRefused) as refused:
        first.commit()
    assert str(refused.value) in FENCED
    second.begin()
    write(second, topic, b"of the second")
    second.commit()
    check_committed(bootstrap, topic, [b"of the second"])
    first.close()
    second.close()


class OwnBroker:
    """A broker that a test may kill, with a topic, and the producers of a client."""

    def __init__(self, broker: RunningBroker, topic: str, producers: Transactors) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.topic = topic
        self.producers = producers
        self._broker = broker

    def restart(self) -> None:
        """Kill the broker as ``kill -9`` does, and start it on the same data."""
        self._broker.kill()
        self._broker.start()


@pytest.fixture(scope="module")
def killed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = SOON if chosen() == KAFKA else {}
    with running(chosen(), tmp_path_factory.mktemp("killed"), settings) as broker:
        yield broker
        confluent_calls.admin.cache_clear()


@pytest.fixture
def own(client: str, topic: str, killed_broker: RunningBroker) -> Iterator[OwnBroker]:
    create_topic(killed_broker.bootstrap_servers, topic)
    with transactors(client, killed_broker.bootstrap_servers) as producers:
        yield OwnBroker(killed_broker, topic, producers)


@LONG_WITH_A_JVM
def test_transaction_that_takes_too_long_is_aborted(own: OwnBroker) -> None:
    """Its producer can't commit it any more, and a new one goes on."""
    producer = own.producers.open(own.topic, timeout_ms=TIMEOUT_MS)
    producer.begin()
    write(producer, own.topic, b"too late")
    check_committed(own.bootstrap, own.topic, [])
    wait_until_stable(own.bootstrap, own.topic, 2)
    with pytest.raises(TransactionRefused):
        producer.commit()
    successor = own.producers.open(own.topic)
    successor.begin()
    write(successor, own.topic, b"in time")
    successor.commit()
    check_committed(own.bootstrap, own.topic, [b"in time"])
    producer.close()
    successor.close()


@LONG_WITH_A_JVM
def test_transaction_survives_a_crash_of_the_broker(own: OwnBroker) -> None:
    """Before the commit, and right after it; the producer stays the same."""
    producer = own.producers.open(own.topic)
    producer.begin()
    write(producer, own.topic, b"before the crash")
    own.restart()
    write(producer, own.topic, b"after the crash")
    producer.commit()
    values = [b"after the crash", b"before the crash"]
    if chosen() == KAFKA:
        # Kafka 4.4.0 sometimes writes the markers more than a minute after such a crash.
        check_committed(own.bootstrap, own.topic, values)
    own.restart()
    check_committed(own.bootstrap, own.topic, values)
    producer.begin()
    write(producer, own.topic, b"aborted")
    own.restart()
    producer.abort()
    producer.begin()
    write(producer, own.topic, b"at the end")
    producer.commit()
    check_committed(
        own.bootstrap, own.topic, [*(b"after the crash", b"at the end", b"before the crash")]
    )
    producer.close()


@LONG_WITH_A_JVM
def test_open_transaction_times_out_after_a_crash(own: OwnBroker) -> None:
    """Producer and broker are killed: nobody ends the transaction but its time-out."""
    producer = own.producers.open(own.topic, timeout_ms=TIMEOUT_AFTER_CRASH_MS)
    producer.begin()
    write(producer, own.topic, b"orphan")
    own.restart()
    produce(own.bootstrap, own.topic, [b"plain"])
    wait_until_stable(own.bootstrap, own.topic, 3)
    check_committed(own.bootstrap, own.topic, [b"plain"])
    producer.close()


@contextmanager
def transaction_version(bootstrap: str, version: int) -> Iterator[None]:
    """The feature ``transaction.version``, which is 2 otherwise."""
    tool = (SCRIPTS["kafka-features"], "--bootstrap-server", bootstrap)
    feature = "transaction.version"
    if version == 2:
        yield
        return
    run_tool(*tool, "downgrade", "--feature", f"{feature}={version}")
    try:
        yield
    finally:
        run_tool(*tool, "upgrade", "--feature", f"{feature}=2")


@LONG_WITH_A_JVM
@pytest.mark.kafka
@skipped(kafka_tools.why_missing())
@pytest.mark.parametrize("version", [0, 1, 2])
def test_transactions_work_with_each_version_of_the_protocol(
    own: OwnBroker, client: str, version: int
) -> None:
    """With version 2 each transaction of a client that knows it has an epoch of its own."""
    with transaction_version(own.bootstrap, version):
        producer = own.producers.open(own.topic)
        epochs = []
        for number in range(3):
            producer.begin()
            write(producer, own.topic, b"committed %d" % number)
            producer.commit()
            epochs.append(producer_epoch(own.bootstrap, own.topic))
        producer.begin()
        write(producer, own.topic, b"aborted")
        producer.abort()
        producer.close()
    check_committed(own.bootstrap, own.topic, [*(b"committed 0", b"committed 1", b"committed 2")])
    has_its_own = version == 2 and client in KNOW_VERSION_2
    assert epochs == ([1, 2, 3] if has_its_own else [0, 0, 0])


def producer_epoch(bootstrap: str, transactional_id: str) -> int:
    printed = run_tool(
        SCRIPTS["kafka-transactions"],
        *("--bootstrap-server", bootstrap, "describe", "--transactional-id", transactional_id),
    )
    names, values = (line.split("\t") for line in printed.splitlines()[:2])
    return int(dict(zip(names, values, strict=True))["ProducerEpoch"])


PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
"""The protocols of consumer groups; the second one is KIP-848."""


@LONG_WITH_A_JVM
@skipped(why_no_go())
@PROTOCOLS
def test_franz_go_copies_a_topic_exactly_once(
    bootstrap: str, topic: str, group: str, protocol: str
) -> None:
    """Its GroupTransactSession reads in a group, writes and commits the offsets, ten at a time."""
    values = [b"record-%02d" % number for number in range(95)]
    create_topic(bootstrap, topic)
    create_topic(bootstrap, f"{topic}.copy")
    produce(bootstrap, topic, values)
    with transactors("franz-go", bootstrap) as producers:
        assert isinstance(producers, LineTransactors)
        producers.command(topic, "copy", protocol, group, topic, f"{topic}.copy", len(values))
    check_committed(bootstrap, f"{topic}.copy", values)
    assert group_offset(bootstrap, group, topic) == len(values)
    described = admin(bootstrap).describe_consumer_groups([group])[group].result(WAIT_SECONDS)
    expected = ConsumerGroupType.CONSUMER if protocol == "consumer" else ConsumerGroupType.CLASSIC
    assert described.type == expected


class Copier:
    """One step of a copy with confluent's clients: read in a group, write, commit both."""

    def __init__(self, bootstrap: str, topic: str, group: str, protocol: str, name: str) -> None:
        self._topic = topic
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe([topic])
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}.{name}"}
        self.producer = Producer(settings)
        self.producer.init_transactions(WAIT_SECONDS)

    def read(self, count: int) -> list[Message]:
        messages: list[Message] = []
        limit = time.monotonic() + WAIT_SECONDS
        while len(messages) < count:
            assert time.monotonic() < limit, f"{len(messages)} of {count} records"
            read = self.consumer.consume(count - len(messages), 0.2)
            messages += [message for message in read if message.error() is None]
        return messages

    def write(self, messages: list[Message]) -> None:
        """Write the records and send the position of the consumer, in a new transaction."""
        self.producer.begin_transaction()
        for message in messages:
            self.producer.produce(f"{self._topic}.copy", message.value(), partition=0)
        self.producer.send_offsets_to_transaction(
            self.consumer.position(self.consumer.assignment()),
            self.consumer.consumer_group_metadata(),
            WAIT_SECONDS,
        )


@PROTOCOLS
def test_member_that_lost_its_partitions_cannot_commit_their_offsets(
    bootstrap: str, topic: str, group: str, protocol: str
) -> None:
    """The first member reads, and is believed dead when it writes; another has read the same.

    Both protocols fence it by the metadata of its group, without a common transactional id.
    """
    values = [b"record-%02d" % number for number in range(20)]
    create_topic(bootstrap, topic)
    create_topic(bootstrap, f"{topic}.copy")
    produce(bootstrap, topic, values)
    first = Copier(bootstrap, topic, group, protocol, "first")
    messages = first.read(10)
    stale = first.consumer.consumer_group_metadata()
    position = first.consumer.position(first.consumer.assignment())
    first.consumer.close()
    second = Copier(bootstrap, topic, group, protocol, "second")
    second.write(second.read(20))
    second.producer.commit_transaction(WAIT_SECONDS)
    first.producer.begin_transaction()
    for message in messages:
        first.producer.produce(f"{topic}.copy", message.value(), partition=0)
    with pytest.raises(KafkaException) as refused:
        first.producer.send_offsets_to_transaction(position, stale, WAIT_SECONDS)
    assert refused.value.args[0].txn_requires_abort()
    first.producer.abort_transaction(WAIT_SECONDS)
    second.consumer.close()
    check_committed(bootstrap, f"{topic}.copy", values)
    assert group_offset(bootstrap, group, topic) == len(values)
