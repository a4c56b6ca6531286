"""Kafka's tools on transactions, and Kafka's formatters on our ``__transaction_state``.

The transactions come from confluent's producer.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from sharegroup.ids import transaction_state_partition
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.confluent_calls import create_topic, end_offset
from tests.support.kafka_tools import SCRIPTS, formatted, run_tool, tools, why_missing
from tests.support.limits import HANGING_SECONDS

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]
TRANSACTIONS = SCRIPTS["kafka-transactions"]
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
of_our_files = pytest.mark.skipif(chosen() == KAFKA, reason="Kafka has files of its own")


def transactions(bootstrap: str, *arguments: str) -> list[dict[str, str]]:
    """The table that kafka-transactions prints, a dictionary for each row."""
    printed = run_tool(TRANSACTIONS, "--bootstrap-server", bootstrap, *arguments)
    rows = [[cell.strip() for cell in line.split("\t")] for line in printed.splitlines()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] if rows else []


def transactional(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(HANGING_SECONDS)
    return producer


def write(producer: Producer, topic: str, *partitions: int) -> None:
    """A record in each partition, in a new transaction that stays open."""
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"record", partition=partition)
    assert producer.flush(HANGING_SECONDS) == 0


def test_kafka_transactions_lists_and_describes_a_transaction(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2)
    producer = transactional(bootstrap, topic)
    (idle,) = transactions(bootstrap, "describe", "--transactional-id", topic)
    assert (idle["TransactionState"], idle["TopicPartitions"]) == ("Empty", "")
    assert idle["CurrentTransactionStartTimeMs"] in ("", "None")
    write(producer, topic, 0, 1)
    listed = [row for row in transactions(bootstrap, "list") if row["TransactionalId"] == topic]
    assert [row["TransactionState"] for row in listed] == ["Ongoing"]
    (described,) = transactions(bootstrap, "describe", "--transactional-id", topic)
    assert described["ProducerId"] == listed[0]["ProducerId"]
    assert described["TransactionTimeoutMs"] == "60000"
    assert set(described["TopicPartitions"].split(",")) == {f"{topic}-0", f"{topic}-1"}
    where = ("--topic", topic, "--partition", "0")
    (active,) = transactions(bootstrap, "describe-producers", *where)
    assert active["ProducerId"] == described["ProducerId"]
    assert (active["LastSequence"], active["CurrentTransactionStartOffset"]) == ("0", "0")
    producer.commit_transaction(HANGING_SECONDS)
    wait_until_complete(bootstrap, topic, "CompleteCommit")
    (closed,) = transactions(bootstrap, "describe-producers", *where)
    assert closed["CurrentTransactionStartOffset"] == "None"


def test_kafka_transactions_lists_the_ids_that_match_a_pattern(bootstrap: str, topic: str) -> None:
    opened = [transactional(bootstrap, f"{topic}/{name}") for name in ("eu-1", "eu-2", "asia")]
    listed = transactions(bootstrap, "list", "--transactional-id-pattern", f"{topic}/(eu|us)-\\d")
    assert sorted(row["TransactionalId"] for row in listed) == [f"{topic}/eu-1", f"{topic}/eu-2"]
    assert len(opened) == 3
    done = tools().run(
        *(TRANSACTIONS, "--bootstrap-server", bootstrap),
        *("list", "--transactional-id-pattern", "(eu"),
    )
    assert done.code == 1


def test_kafka_transactions_aborts_a_transaction_in_a_partition(bootstrap: str, topic: str) -> None:
    """As an administrator does for a transaction that no coordinator knows."""
    create_topic(bootstrap, topic)
    producer = transactional(bootstrap, topic)
    write(producer, topic, 0)
    assert transactions(bootstrap, "find-hanging", "--topic", topic, "--partition", "0") == []
    assert stable_offset(bootstrap, topic) == 0
    where = ("--topic", topic, "--partition", "0")
    transactions(bootstrap, "abort", *where, "--start-offset", "0")
    (aborted,) = transactions(bootstrap, "describe-producers", *where)
    assert aborted["CurrentTransactionStartOffset"] == "None"
    assert stable_end(bootstrap, topic) == 2


def test_kafka_transactions_ends_the_transaction_of_an_id(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    write(transactional(bootstrap, topic), topic, 0)
    transactions(bootstrap, "forceTerminateTransaction", "--transactionalId", topic)
    (described,) = transactions(bootstrap, "describe", "--transactional-id", topic)
    assert described["TransactionState"] in ("PrepareAbort", "CompleteAbort", "Empty")
    assert stable_end(bootstrap, topic) == 2


def test_kafka_producer_perf_test_writes_transactions(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    printed = run_tool(
        SCRIPTS["kafka-producer-perf-test"],
        *("--topic", topic, "--num-records", "3000", "--record-size", "100"),
        *("--throughput", "-1", "--transactional-id", topic, "--transaction-duration-ms", "50"),
        *("--command-property", f"bootstrap.servers={bootstrap}"),
    )
    assert "3000 records sent" in printed
    assert stable_end(bootstrap, topic) > 3_000, "a marker for each transaction"


def wait_until_complete(bootstrap: str, transactional_id: str, state: str) -> None:
    """Return when the markers are written: the producer is answered before."""
    limit = time.monotonic() + HANGING_SECONDS
    while True:
        (found,) = transactions(bootstrap, "describe", "--transactional-id", transactional_id)
        if found["TransactionState"] == state:
            return
        assert time.monotonic() < limit, f"expected {state}: {found}"


def stable_end(bootstrap: str, topic: str) -> int:
    """The end of partition 0, once no transaction is open: markers come after the answer."""
    limit = time.monotonic() + HANGING_SECONDS
    while (stable := stable_offset(bootstrap, topic)) != (end := end_offset(bootstrap, topic)):
        assert time.monotonic() < limit, f"the last stable offset is {stable}, the end {end}"
    return stable


def stable_offset(bootstrap: str, topic: str) -> int:
    """The last stable offset of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
        }
    )
    try:
        place = TopicPartition(topic, 0, OFFSET_BEGINNING)
        found: int = consumer.get_watermark_offsets(place, timeout=HANGING_SECONDS)[1]
        return found
    finally:
        consumer.close()


@pytest.mark.slow
@of_our_files
def test_kafkas_formatter_and_our_logs_print_the_same_transactions(
    bootstrap: str, data_directory: Path, topic: str
) -> None:
    """`sharegroup logs`, `sharegroup tail`, Kafka's formatter and kafka-dump-log agree.

    Tools of release 4.3.1 print the number of a state; 4.4 and sharegroup print its name.
    """
    create_topic(bootstrap, topic)
    producer = transactional(bootstrap, topic)
    write(producer, topic, 0)
    producer.commit_transaction(HANGING_SECONDS)
    write(producer, topic, 0)
    producer.abort_transaction(HANGING_SECONDS)
    wait_until_complete(bootstrap, topic, "CompleteAbort")
    partition = transaction_state_partition(topic, 50)
    written = sharegroup("logs", str(data_directory), "--records", "--topic", topic)
    assert [record.get("marker") for record in written] == [None, "commit", None, "abort"]
    arguments = ("--topic", "__transaction_state", "--partition", str(partition))
    ours = of_id(topic, sharegroup("logs", str(data_directory), "--records", *arguments))
    assert [record["value"]["data"]["transactionStatus"] for record in ours] == [
        *("Empty", "Ongoing", "PrepareCommit", "CompleteCommit"),
        *("Ongoing", "PrepareAbort", "CompleteAbort"),
    ]
    theirs = formatted(
        bootstrap, "__transaction_state", "TransactionLogMessageFormatter", partition=partition
    )
    assert [with_name(record) for record in of_id(topic, theirs)] == ours
    tail = ("tail", "__transaction_state", "--partition", str(partition), "--decode", "state")
    tailed = sharegroup(*tail, "-n", "1000", "--bootstrap-server", bootstrap)
    assert of_id(topic, tailed) == ours
    (log,) = (path for path in data_directory.rglob("*.log") if topic.encode() in path.read_bytes())
    dumped = run_tool(SCRIPTS["kafka-dump-log"], "--transaction-log-decoder", "--files", str(log))
    assert "isvalid: false" not in dumped
    pairs = re.findall(r"key: (\{.*\}) payload: (\{.*\})$", dumped, re.MULTILINE)
    mine = [json.loads(value)["data"] for key, value in pairs if f'"{topic}"' in key]
    assert [with_name({"value": {"data": value}})["value"]["data"] for value in mine] == [
        record["value"]["data"] for record in ours
    ]


def sharegroup(*arguments: str) -> list[dict[str, Any]]:
    """The lines that the command prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "sharegroup", *arguments],
        capture_output=True,
        timeout=HANGING_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_id(transactional_id: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Key and value of the records of a transactional id."""
    return [
        {"key": record["key"], "value": record["value"]}
        for record in records
        if record["key"]["data"]["transactionalId"] == transactional_id
    ]


def with_name(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose state is the name, also from a tool that prints the number."""
    state = record["value"]["data"]["transactionStatus"]
    if isinstance(state, int):
        record["value"]["data"]["transactionStatus"] = STATES[state]
    return record
