"""``sharegroup perf`` against a broker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.cli.common.cluster_access import Access
from sharegroup.cli.measuring.consuming import ConsumePlan, consume_in_processes
from sharegroup.cli.measuring.date_format import DATE_FORMAT_DEFAULT
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from tests.integration.cli.piping import Piped, at, sharegroup
from tests.integration.cli.test_json_keys import keys_of, promised
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.limits import HANGING_SECONDS
from tests.support.unreadable import produce_batches, untrue


@pytest.fixture(scope="module")
def filled(bootstrap: str) -> str:
    """A topic with 3,000 records of 50 bytes."""
    sharegroup(*at(bootstrap, "topics create filled --partitions 2"))
    options = "--num-records 3000 --record-size 50 --compression lz4"
    done = sharegroup(*at(bootstrap, f"perf produce filled {options}"))
    assert done.code == 0
    assert re.fullmatch(
        r"3000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
        r"[\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th.\n",
        done.out.decode(),
    )
    return "filled"


def consume(bootstrap: str, topic: str, group: str, words: str) -> Piped:
    earliest = f"configs alter --group {group} --set share.auto.offset.reset=earliest"
    sharegroup(*at(bootstrap, earliest))
    return sharegroup(*at(bootstrap, f"perf consume --topic {topic} --group {group} {words}"))


def test_consumer_prints_kafkas_columns(bootstrap: str, filled: str) -> None:
    done = consume(bootstrap, filled, "perf-columns", "--num-records 3000 --show-consumer-stats")
    assert done.code == 0
    heads, consumer, total = (line.decode().split(", ") for line in done.lines)
    values = dict(zip(heads, total, strict=True))
    assert values["data.consumed.in.nMsg"] == "3000"
    assert values["data.consumed.in.MB"] == "0.1431"
    assert values["redelivered.nMsg"] == "0"
    assert consumer[0].startswith(
        "Share consumer 1 having client id perf-share-consumer-client consumption metrics- 20"
    )
    assert consumer[1:] == total[1:7]


def test_date_format_and_socket_buffer_of_kafkas_tool_are_taken(
    bootstrap: str, filled: str
) -> None:
    words = "--num-records 3000 --show-detailed-stats --reporting-interval 1 --hide-header"
    java = "--date-format yyyy'y' --socket-buffer-size 65536"
    done = consume(bootstrap, filled, "perf-dates", f"{words} {java}")
    assert done.code == 0
    for line in done.lines:
        assert re.fullmatch(rb"\d{4}y, \d{4}y, .*", line), line
    refused = consume(bootstrap, filled, "perf-dates", "--num-records 1 --date-format EEE")
    assert (refused.code, "expected letters of yMdHmsSZ" in refused.err) == (2, True)


@pytest.mark.skipif(chosen() == KAFKA, reason="Kafka refuses such batches")
def test_unreadable_batch_does_not_end_the_run(bootstrap: str) -> None:
    sharegroup(*at(bootstrap, "topics create perf-damaged --partitions 1"))
    earliest = "configs alter --group perf-damaged --set share.auto.offset.reset=earliest"
    assert sharegroup(*at(bootstrap, earliest)).code == 0
    produce_batches(bootstrap, "perf-damaged", untrue())
    sharegroup(*at(bootstrap, "produce perf-damaged"), stdin=b"1")
    done = consume(bootstrap, "perf-damaged", "perf-damaged", "--num-records 2 --timeout 900")
    assert done.code == 1
    assert done.err.count("partition 0 offsets 0 to 399 cannot be read") == 1
    heads, total = (line.decode().split(", ") for line in done.lines)
    assert dict(zip(heads, total, strict=True))["data.consumed.in.nMsg"] == "1"


def test_several_consumers_share_the_records(bootstrap: str, filled: str) -> None:
    done = consume(bootstrap, filled, "perf-shared", "--num-records 3000 --threads 2 --json")
    assert done.code == 0
    facts = json.loads(done.out)
    assert keys_of(facts) == promised("perf consume")
    assert {*keys_of(facts["consumers"])} == {*keys_of(facts), "client_id"} - {"consumers"}
    assert facts["records"] == 3_000
    assert [fact["client_id"] for fact in facts["consumers"]] == [
        "perf-share-consumer-client-1",
        "perf-share-consumer-client-2",
    ]
    assert sum(fact["records"] for fact in facts["consumers"]) == 3_000
    assert facts["latency_ms"]["p99"] >= facts["latency_ms"]["p50"] > 0


@pytest.mark.slow
def test_consumers_in_processes_authenticate_like_a_single_one(
    bootstrap: str, tmp_path: Path
) -> None:
    """The token provider is sent to their processes with the other options."""
    (tmp_path / "token").write_text("secret")
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
    }
    options = Access(bootstrap, 200, properties).client_options(ShareConsumerConfig)
    plan = ConsumePlan(
        topic="t",
        count=1,
        idle_ms=200,
        where=bootstrap,
        interval_ms=1_000,
        detailed=False,
        date_format=DATE_FORMAT_DEFAULT,
        client_options={**options, "client_id": "perf", "group_id": "perf"},
    )
    _, results = consume_in_processes(plan, 2)
    assert [result.client_id for result in results] == ["perf-1", "perf-2"]
    refused = "SASL OAUTHBEARER: the broker offers none"
    assert all(refused in result.error for result in results), "they tried to log in"


@pytest.mark.usefixtures("filled")
def test_released_records_count_as_redelivered(bootstrap: str) -> None:
    earliest = "configs alter --group perf-again --set share.auto.offset.reset=earliest"
    sharegroup(*at(bootstrap, earliest))
    release = "consume filled --group perf-again --release --max-messages 10 --timeout-ms 5000"
    assert len(sharegroup(*at(bootstrap, release)).lines) == 10
    again = "perf consume --topic filled --group perf-again --num-records 3000 --json"
    done = sharegroup(*at(bootstrap, again))
    assert json.loads(done.out)["redelivered"] == 10


@pytest.mark.slow
def test_too_few_records_are_a_failure_with_a_message(bootstrap: str, filled: str) -> None:
    done = consume(bootstrap, filled, "perf-few", "--num-records 4000 --timeout 3000 --hide-header")
    assert done.code == 1
    assert done.out.decode().split(", ")[5] == "3000"
    assert done.err == (
        "Error: 3000 of 4000 records arrived, and no more within 3000 ms (increase --timeout to "
        "wait longer)\n"
    )


def test_producer_keeps_the_pace_and_reports_the_warm_up_apart(bootstrap: str) -> None:
    sharegroup(*at(bootstrap, "topics create paced --partitions 1"))
    options = "--num-records 100 --payload-monotonic --throughput 400 --warmup-records 20"
    done = sharegroup(*at(bootstrap, f"perf produce --topic paced {options} --json"))
    facts = json.loads(done.out)
    assert (facts["records"], facts["bytes"], facts["failed"]) == (100, 190, 0)
    assert facts["elapsed_ms"] >= 240
    assert facts["steady"]["records"] == 80
    assert keys_of(facts) == [*promised("perf produce"), "steady"]


def test_slow_producer_reports_progress_and_ends_when_interrupted(bootstrap: str) -> None:
    sharegroup(*at(bootstrap, "topics create slow --partitions 1"))
    options = "--num-records 1000 --record-size 1 --throughput 2 --reporting-interval 1"
    words = at(bootstrap, f"perf produce --topic slow {options}")
    command = [sys.executable, "-m", "sharegroup", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert b" records sent, " in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=HANGING_SECONDS)
    assert (child.returncode, err) == (130, b"")


def test_print_metrics_prints_metrics(bootstrap: str) -> None:
    sharegroup(*at(bootstrap, "topics create metered --partitions 1"))
    options = "--num-records 10 --record-size 10 --print-metrics"
    done = sharegroup(*at(bootstrap, f"perf produce --topic metered {options}"))
    assert re.search(rb"producer-metrics:record-send-total +: 10\.000", done.out)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("perf produce --topic t --num-records 1", "give exactly one of --record-size"),
        (
            "perf produce --topic t --num-records 1 --record-size 1 --payload-monotonic",
            "give exactly one of --record-size",
        ),
        (
            "perf produce --topic t --num-records 1 --record-size 1 --key-distribution range",
            "needs --record-key-range",
        ),
        ("perf consume --topic t", "Missing option '--num-records'"),
    ],
)
def test_options_that_mean_nothing_are_a_misuse(bootstrap: str, words: str, problem: str) -> None:
    refused = sharegroup(*at(bootstrap, words))
    assert refused.code == 2
    assert problem in refused.err
