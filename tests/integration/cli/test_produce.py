"""``sharegroup produce`` against a broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sharegroup.testing import run_broker
from tests.integration.cli.piping import PATIENT, Piped, at, reading, sharegroup
from tests.support.confluent_calls import end_offset
from tests.support.limits import HANGING_SECONDS


def produce(bootstrap: str, topic: str, *more: str, stdin: bytes = b"") -> Piped:
    return sharegroup("produce", topic, *more, "--bootstrap", bootstrap, stdin=stdin)


def create(bootstrap: str, topic: str, partitions: int = 1, *more: str) -> None:
    words = at(bootstrap, f"topics create {topic} --partitions {partitions}")
    assert sharegroup(*words, *more).code == 0


def everything(bootstrap: str, topic: str, partitions: int = 1) -> list[dict[str, object]]:
    """The records of a topic in the order of their values, as JSON without time and place."""
    group = f"reads-{topic}"
    count = sum(end_offset(bootstrap, topic, partition) for partition in range(partitions))
    sharegroup(
        *at(bootstrap, f"configs alter --group {group} --set share.auto.offset.reset=earliest")
    )
    words = f"consume {topic} --group {group} --json --max-messages {count} {PATIENT}"
    found = sharegroup(*at(bootstrap, words)).documents
    for row in found:
        for name in ("topic", "offset", "timestamp", "delivery_count", "deadline"):
            del row[name]
    return found


def test_every_line_becomes_a_record_and_is_acknowledged(bootstrap: str) -> None:
    create(bootstrap, "lines")
    done = produce(bootstrap, "lines", stdin=b"one\ntwo\n\nlast")
    assert (done.code, done.out, done.err) == (0, b"", "")
    assert [row["value"] for row in everything(bootstrap, "lines")] == ["one", "two", "", "last"]


def test_files_are_read_in_order_and_a_dash_is_standard_input(
    bootstrap: str, tmp_path: Path
) -> None:
    create(bootstrap, "files")
    (tmp_path / "a").write_bytes(b"a1\na2")
    (tmp_path / "b").write_bytes(b"b1\n")
    done = produce(bootstrap, "files", str(tmp_path / "a"), "-", str(tmp_path / "b"), stdin=b"in\n")
    assert done.code == 0
    assert [row["value"] for row in everything(bootstrap, "files")] == ["a1", "a2", "in", "b1"]


def test_keys_headers_and_null_are_taken_from_the_line(bootstrap: str) -> None:
    create(bootstrap, "parts")
    options = ("--key-separator", "=", "--headers", "--null-marker", "NULL", "--header", "all=x ")
    assert produce(bootstrap, "parts", *options, stdin=b"h:1\tk=v\nNULL\tk=NULL\n").code == 0
    assert everything(bootstrap, "parts") == [
        {
            "partition": 0,
            "key": "k",
            "value": "v",
            "headers": [{"name": "h", "value": "1"}, {"name": "all", "value": "x "}],
        },
        {"partition": 0, "key": "k", "value": None, "headers": [{"name": "all", "value": "x "}]},
    ]


def test_json_records_keep_their_partitions(bootstrap: str) -> None:
    create(bootstrap, "source", 2)
    lines = b'{"value_base64":"/wA=","partition":1}\n{"key":"k","value":{"a":1},"partition":0}\n'
    assert produce(bootstrap, "source", "--json", stdin=lines).code == 0
    create(bootstrap, "copy", 2)
    sharegroup(
        *at(bootstrap, "configs alter --group copies --set share.auto.offset.reset=earliest")
    )
    words = f"consume source --group copies --json --max-messages 2 {PATIENT}"
    source = sharegroup(*at(bootstrap, words))
    assert produce(bootstrap, "copy", "--json", stdin=source.out).code == 0
    found = sorted(everything(bootstrap, "copy", 2), key=lambda row: str(row["partition"]))
    assert found == [
        {"partition": 0, "key": "k", "value": '{"a":1}', "headers": []},
        {"partition": 1, "key": None, "value_base64": "/wA=", "headers": []},
    ]


def test_partition_option_overrides_the_input(bootstrap: str) -> None:
    create(bootstrap, "placed", 2)
    line = b'{"value":"a","partition":9}\n'
    refused = produce(bootstrap, "placed", "--json", stdin=line)
    assert refused.code == 1
    assert "record 1: UnknownTopicOrPartition: topic 'placed' has partitions 0 to 1" in refused.err
    assert produce(bootstrap, "placed", "--json", "--any-partition", stdin=line).code == 0
    assert produce(bootstrap, "placed", "--json", "--partition", "1", stdin=line).code == 0
    assert len(everything(bootstrap, "placed", 2)) == 2


def test_records_before_an_unreadable_line_are_sent(bootstrap: str) -> None:
    create(bootstrap, "broken")
    done = produce(bootstrap, "broken", "--key-separator", ":", stdin=b"k:1\nk:2\nbad\nk:3\n")
    assert done.code == 1
    assert done.err == (
        "sharegroup: standard input: line 3: no key.separator b':' in b'bad'\n"
        "acknowledged 2 of 2 records\n"
    )
    assert [row["value"] for row in everything(bootstrap, "broken")] == ["1", "2"]


def test_record_that_is_too_large_is_reported_and_the_others_are_sent(bootstrap: str) -> None:
    create(bootstrap, "large")
    options = ("--command-property", "max.request.size=1000")
    done = produce(bootstrap, "large", *options, stdin=b"a\n" + b"x" * 2_000 + b"\nb\n")
    assert done.code == 1
    assert done.err.startswith(
        "sharegroup: record 2: MessageTooLarge: topic 'large': the record has "
    )
    assert done.err.endswith("acknowledged 2 of 3 records\n")
    assert [row["value"] for row in everything(bootstrap, "large")] == ["a", "b"]


def test_compressed_records_arrive_unchanged(bootstrap: str) -> None:
    create(bootstrap, "packed")
    text = b"".join(b"line %d\n" % number for number in range(1_000))
    done = produce(bootstrap, "packed", "--compression", "zstd", "--acks", "1", stdin=text)
    assert done.code == 0
    assert len(everything(bootstrap, "packed")) == 1_000


def test_invalid_topic_fails_with_the_number_of_acknowledged_records(bootstrap: str) -> None:
    done = produce(bootstrap, "not a name", stdin=b"a\n")
    assert done.code == 1
    assert "acknowledged 0 of 1 record" in done.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--json", "--format", "%v"), "exclude each other"),
        (("--json", "--key-separator", ":"), "exclude each other"),
        (("--format", "%k%v"), "%k needs its length before it"),
        (("--reader-property", "a=b"), "there is no reader property a"),
        (("--reader-property", "parse.key"), "'parse.key': expected KEY=VALUE"),
        (("--command-property", "acks=2"), "acks=2; expected 'all', 1 or 0"),
        (("nowhere.txt",), "'nowhere.txt' does not exist"),
    ],
)
def test_options_that_mean_nothing_are_a_misuse(
    bootstrap: str, options: tuple[str, ...], problem: str
) -> None:
    refused = produce(bootstrap, "misused", *options)
    assert refused.code == 2
    assert problem in refused.err.replace("\n", " ")


def test_unreachable_broker_is_named_with_advice() -> None:
    done = sharegroup(
        "produce", "t", "--bootstrap", "127.0.0.1:1", "--timeout", "200", stdin=b"a\n"
    )
    assert done.code == 1
    assert "acknowledged 0 of 1 record" in done.err
    assert "sharegroup: record 1: " in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_reading_after_complete_lines_are_acknowledged(
    bootstrap: str, number: signal.Signals, code: int
) -> None:
    topic = group = f"stopped-{code}"
    create(bootstrap, topic)
    words = [sys.executable, "-m", "sharegroup", *at(bootstrap, f"produce {topic}")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(b"a\nhalf a li")
        child.stdin.flush()
        reset = f"configs alter --group {group} --set share.auto.offset.reset=earliest"
        sharegroup(*at(bootstrap, reset))
        seen = sharegroup(*at(bootstrap, f"consume {topic} --group {group} --max-messages 1"))
        assert seen.out == b"a\n"
        child.send_signal(number)
        assert child.wait(timeout=HANGING_SECONDS) == code, "the input has not ended yet"
        assert child.stderr is not None
        assert child.stderr.read() == b""
    assert [row["value"] for row in everything(bootstrap, topic)] == ["a"]


def test_pipe_is_read_by_the_event_loop(bootstrap: str) -> None:
    create(bootstrap, "pipe")
    ours, theirs = os.pipe()
    os.write(theirs, b"a\nb\n")
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        assert reading(pipe, *at(bootstrap, "produce pipe")).code == 0
    assert [row["value"] for row in everything(bootstrap, "pipe")] == ["a", "b"]


def test_full_disk_is_said_within_the_timeout_and_counted() -> None:
    """A queue's operator sees it in the command, in the broker's log and in a metric."""
    with run_broker() as broker:
        broker.create_topic("orders")
        broker.disk.fill_up()
        began = time.monotonic()
        done = sharegroup(
            *("produce", "orders", "--timeout", "500"),
            *("--command-property", "enable.idempotence=false"),
            *("--bootstrap-server", broker.bootstrap_servers),
            stdin=b"one\n",
        )
        assert time.monotonic() - began < HANGING_SECONDS
        assert done.code == 1
        assert "accepts no appends: a write failed: [Errno 28] No space left on device" in done.err
        assert broker.running.directory.fenced_count == 1
        broker.disk.make_room()
        words = ("produce", "orders", "--timeout", "20000")
        again = sharegroup(*words, "--bootstrap-server", broker.bootstrap_servers, stdin=b"two\n")
        assert again.code == 0, again.err
        assert broker.running.directory.fenced_count == 0
