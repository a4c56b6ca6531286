"""Transactional producers of five clients behind one face, for tests that all of them must pass.

The Java client and franz-go run in processes of their own, which take commands on standard input:
`java/Transactor.java` and `go/transactor/transactor.go`.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AIOKafkaError
from aiokafka.structs import TopicPartition as AIOKafkaPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer, TopicPartition as KafkaPythonPartition
from kafka.consumer.group import ConsumerGroupMetadata
from kafka.errors import KafkaError as KafkaPythonError
from kafka.structs import OffsetAndMetadata

from tests.interop.line_programs import line_program

CALL_SECONDS_MAX = 60


class TransactionRefused(Exception):
    """A client's call failed; the text is the client's name of the error."""


class TransactionalProducer(Protocol):
    """A producer of one client; a call that fails raises `TransactionRefused`."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: bytes) -> None: ...
    def flush(self) -> None: ...
    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Transactors(Protocol):
    """Opens producers of one client; the call also gives the transactional id to the producer."""

    def open(
        self, transactional_id: str, *, timeout_ms: int = CALL_SECONDS_MAX * 1_000
    ) -> TransactionalProducer: ...


class _Confluent:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._errors: list[Any] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
            }
        )
        self._call(self._producer.init_transactions, CALL_SECONDS_MAX)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._call(
            self._producer.produce, topic, value, partition=partition, on_delivery=self._delivered
        )

    def flush(self) -> None:
        assert self._producer.flush(CALL_SECONDS_MAX) == 0
        if self._errors:
            raise TransactionRefused(self._errors[0].name())

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            self._call(
                self._producer.send_offsets_to_transaction,
                [TopicPartition(topic, partition, offset)],
                consumer.consumer_group_metadata(),
                CALL_SECONDS_MAX,
            )
        finally:
            consumer.close()

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, CALL_SECONDS_MAX)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, CALL_SECONDS_MAX)

    def close(self) -> None:
        """librdkafka's producer ends with its last reference; it sends nothing then."""
        del self._producer

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._errors.append(error)

    @staticmethod
    def _call(call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        try:
            call(*arguments, **options)
        except KafkaException as error:
            raise TransactionRefused(error.args[0].name()) from error


class _KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._sent: list[Any] = []
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self._call(self._producer.init_transactions)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._call(
            lambda: self._sent.append(self._producer.send(topic, value, partition=partition))
        )

    def flush(self) -> None:
        self._call(self._producer.flush, CALL_SECONDS_MAX)
        for sent in self._sent:
            self._call(sent.get, CALL_SECONDS_MAX)
        self._sent.clear()

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {KafkaPythonPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        metadata = ConsumerGroupMetadata(group, -1, "", None)
        self._call(self._producer.send_offsets_to_transaction, offsets, metadata)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=0)

    @staticmethod
    def _call(call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except KafkaPythonError as error:
            raise TransactionRefused(type(error).__name__) from error


class _AIOKafka:
    def __init__(
        self, runner: asyncio.Runner, bootstrap: str, transactional_id: str, timeout_ms: int
    ) -> None:
        self._runner = runner
        self._sent: list[asyncio.Future[Any]] = []
        self._producer = self._call(self._started(bootstrap, transactional_id, timeout_ms))

    @staticmethod
    async def _started(bootstrap: str, transactional_id: str, timeout_ms: int) -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        await producer.start()
        return producer

    def begin(self) -> None:
        self._call(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._sent.append(self._call(self._producer.send(topic, value, partition=partition)))

    def flush(self) -> None:
        self._call(self._producer.flush())
        for sent in self._sent:
            self._call(asyncio.wait_for(sent, CALL_SECONDS_MAX))
        self._sent.clear()

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {AIOKafkaPartition(topic, partition): offset}
        self._call(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction())

    def abort(self) -> None:
        self._call(self._producer.abort_transaction())

    def close(self) -> None:
        self._call(self._producer.stop())

    def _call(self, call: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._runner.run(call)
        except AIOKafkaError as error:
            raise TransactionRefused(type(error).__name__) from error


class _ByLines:
    """A producer in the process of a `LineTransactors`."""

    def __init__(self, command: Callable[..., None], name: str) -> None:
        self._command = command
        self._name = name

    def begin(self) -> None:
        self._command(self._name, "begin")

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._command(self._name, "send", topic, partition, value.decode())

    def flush(self) -> None:
        self._command(self._name, "flush")

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._command(self._name, "offset", group, topic, partition, offset)

    def commit(self) -> None:
        self._command(self._name, "commit")

    def abort(self) -> None:
        self._command(self._name, "abort")

    def close(self) -> None:
        self._command(self._name, "close")


class LineTransactors:
    """The producers of a program that takes commands on standard input."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._names = count(1)

    def open(
        self, transactional_id: str, *, timeout_ms: int = CALL_SECONDS_MAX * 1_000
    ) -> TransactionalProducer:
        name = f"producer{next(self._names)}"
        self.command(name, "init", transactional_id, timeout_ms)
        return _ByLines(self.command, name)

    def command(self, *words: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        outcome, _, reason = self._process.stdout.readline().strip().partition(" ")
        if outcome != "ok":
            assert outcome == "error", f"{words}: {outcome!r} {reason}"
            raise TransactionRefused(reason)


class _Calls:
    """The producers of a client in this process."""

    def __init__(self, make: Callable[[str, int], TransactionalProducer]) -> None:
        self._make = make

    def open(
        self, transactional_id: str, *, timeout_ms: int = CALL_SECONDS_MAX * 1_000
    ) -> TransactionalProducer:
        return self._make(transactional_id, timeout_ms)


@contextmanager
def transactors(client: str, bootstrap: str) -> Iterator[Transactors]:
    """The producers of a client by its name: confluent, kafka-python, aiokafka, java, franz-go."""
    match client:
        case "confluent":
            yield _Calls(lambda name, timeout_ms: _Confluent(bootstrap, name, timeout_ms))
        case "kafka-python":
            yield _Calls(lambda name, timeout_ms: _KafkaPython(bootstrap, name, timeout_ms))
        case "aiokafka":
            with asyncio.Runner() as runner:
                yield _Calls(
                    lambda name, timeout_ms: _AIOKafka(runner, bootstrap, name, timeout_ms)
                )
            with warnings.catch_warnings():
                # It leaves the sockets of a killed broker to the garbage collector.
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
        case "java" | "franz-go":
            with line_program(client, "Transactor", bootstrap) as process:
                yield LineTransactors(process)
        case _:
            raise AssertionError(f"no client {client!r}")
