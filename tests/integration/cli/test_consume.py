"""``sharegroup consume`` against a broker: what is written, and what becomes of the record."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sharegroup.testing import run_broker
from tests.integration.cli.piping import PATIENT, Piped, at, sharegroup
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.limits import HANGING_SECONDS
from tests.support.unreadable import cut_off, produce_batches, untrue

Prepare = Callable[..., None]


@pytest.fixture
def prepare(bootstrap: str) -> Prepare:
    """Make a topic with one partition and records, and a group that begins with the first."""

    def prepared(topic: str, group: str, *values: bytes, options: tuple[str, ...] = ()) -> None:
        sharegroup(*at(bootstrap, f"topics create {topic} --partitions 1"))
        earliest = f"configs alter --group {group} --set share.auto.offset.reset=earliest"
        assert sharegroup(*at(bootstrap, earliest)).code == 0
        text = b"\n".join(values)
        assert sharegroup(*at(bootstrap, f"produce {topic}"), *options, stdin=text).code == 0

    return prepared


def consume(bootstrap: str, topic: str, group: str, *more: str) -> Piped:
    """It waits long for a number of records that is asked for, and little for nothing more."""
    timeout = PATIENT if "--max-messages" in more else "--timeout-ms 400"
    return sharegroup(*at(bootstrap, f"consume {topic} --group {group} {timeout}"), *more)


def process(bootstrap: str, topic: str, group: str, *more: str) -> subprocess.Popen[bytes]:
    """The same as a process of its own, with pipes."""
    words = at(bootstrap, f"consume {topic} --group {group}")
    command = [sys.executable, "-m", "sharegroup", *words, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_values_are_written_one_on_a_line_and_accepted(bootstrap: str, prepare: Prepare) -> None:
    prepare("plain", "plain", b"one", b"two", b"\xff")
    first = consume(bootstrap, "plain", "plain", "--max-messages", "3")
    assert (first.code, first.out) == (0, b"one\ntwo\n\xff\n")
    assert first.err == "sharegroup: processed 3 records\n"
    assert consume(bootstrap, "plain", "plain").out == b""


def test_format_json_and_kafkas_properties_write_the_same_record(
    bootstrap: str, prepare: Prepare
) -> None:
    prepare("forms", "forms", b"h:1\tk=v", options=("--headers", "--key-separator", "="))
    release = ("--release", "--max-messages", "1")
    by_format = consume(
        bootstrap, "forms", "forms", *release, "--format", r"%t/%p/%o %h{%k=%v }%k %v %c %i\n"
    )
    assert by_format.out == b"forms/0/0 h=1 k v 1 1\n"
    (document,) = consume(bootstrap, "forms", "forms", *release, "--json").documents
    assert document["headers"] == [{"name": "h", "value": "1"}]
    assert (document["key"], document["delivery_count"]) == ("k", 2)
    assert document["deadline"] > document["timestamp"]
    properties = ("--property", "print.key=true", "--property", "key.separator= ")
    assert consume(bootstrap, "forms", "forms", "--max-messages", "1", *properties).out == b"k v\n"


def test_max_messages_acquires_no_more_records_than_its_number(
    bootstrap: str, prepare: Prepare
) -> None:
    prepare("few", "few", *(b"%d" % number for number in range(10)))
    assert consume(bootstrap, "few", "few", "--max-messages", "3").out == b"0\n1\n2\n"
    rest = consume(bootstrap, "few", "few", "--max-messages", "7", "--format", r"%v,%c ")
    assert rest.out == b"3,1 4,1 5,1 6,1 7,1 8,1 9,1 ", "no record was delivered twice"


def test_released_records_are_redelivered_and_rejected_ones_are_not(
    bootstrap: str, prepare: Prepare
) -> None:
    prepare("outcomes", "outcomes", b"a", b"b")
    options = ("--max-messages", "2")
    assert consume(bootstrap, "outcomes", "outcomes", "--release", *options).out == b"a\nb\n"
    assert consume(bootstrap, "outcomes", "outcomes", "--reject", *options).out == b"a\nb\n"
    assert consume(bootstrap, "outcomes", "outcomes").out == b""


def test_record_that_cannot_be_formatted_ends_the_run_and_is_released(
    bootstrap: str, prepare: Prepare
) -> None:
    prepare("poison", "poison", b"1", b"no json", b"2")
    options = ("--max-messages", "3", "--format", r"%v{json}\n")
    stopped = consume(bootstrap, "poison", "poison", *options)
    assert (stopped.code, stopped.out) == (1, b"1\n")
    assert "Error: topic 'poison' partition 0 offset 1: not a JSON document: " in stopped.err
    assert "with --reject-on-error it is rejected" in stopped.err
    again = consume(bootstrap, "poison", "poison", "--max-messages", "2")
    assert again.out == b"no json\n2\n"


@pytest.mark.skipif(chosen() == KAFKA, reason="Kafka refuses such batches")
def test_unreadable_batches_are_reported_and_do_not_end_the_run(
    bootstrap: str, prepare: Prepare
) -> None:
    prepare("damaged", "damaged", b"1")
    produce_batches(bootstrap, "damaged", cut_off(), untrue())
    sharegroup(*at(bootstrap, "produce damaged"), stdin=b"2")
    done = consume(bootstrap, "damaged", "damaged", "--max-messages", "2")
    assert (done.code, done.out) == (1, b"1\n2\n")
    released = "sharegroup: released at the end: topic 'damaged' partition 0 offsets"
    # The first fetch is for two records, which begin a range; the rest of the batch is another.
    assert 2 <= done.err.count(released) <= 4
    assert "800 cannot be read" in done.err
    assert "ranges of offsets could not be read\n" in done.err
    again = consume(bootstrap, "damaged", "damaged", "--reject-on-error", "--timeout-ms", "900")
    assert (again.code, again.out) == (1, b"")
    assert "sharegroup: rejected: topic 'damaged' partition 0 offsets 1 to" in again.err
    last = consume(bootstrap, "damaged", "damaged", "--timeout-ms", "900")
    assert (last.code, last.err) == (0, "sharegroup: processed 0 records\n")


def test_reject_on_error_rejects_a_record_that_cannot_be_formatted(
    bootstrap: str, prepare: Prepare
) -> None:
    prepare("reject", "reject", b"1", b"no json", b"2")
    options = ("--reject-on-error", "--max-messages", "3", "--format", r"%v{json}\n")
    done = consume(bootstrap, "reject", "reject", *options)
    assert (done.code, done.out) == (0, b"1\n2\n")
    assert (
        "sharegroup: rejected: topic 'reject' partition 0 offset 1: not a JSON document" in done.err
    )
    assert done.err.endswith("processed 3 records, 1 of them rejected\n")
    assert consume(bootstrap, "reject", "reject").out == b""


def test_several_topics_are_consumed_together(bootstrap: str, prepare: Prepare) -> None:
    prepare("both-a", "both", b"a")
    prepare("both-b", "both", b"b")
    done = consume(bootstrap, "both-a", "both", "--topic", "both-b", "--max-messages", "2")
    assert sorted(done.lines) == [b"a", b"b"]


def test_group_of_the_properties_is_the_group(bootstrap: str, prepare: Prepare) -> None:
    prepare("by-property", "said-by-property", b"one")
    words = (
        f"consume by-property --max-messages 1 {PATIENT}"
        f" --command-property bootstrap.servers={bootstrap}"
    )
    done = sharegroup(*words.split(), "--command-property", "group.id=said-by-property")
    assert done.out == b"one\n"
    both = sharegroup(*words.split(), "--group", "a", "--command-property", "group.id=b")
    assert both.code == 2
    assert "--group 'a' and the property group.id='b' differ" in both.err


def test_missing_topic_is_named_and_waited_for(bootstrap: str) -> None:
    properties = ("--command-property", "max.poll.records=10")
    done = consume(bootstrap, "qzxqzxqz", "waits", *properties)
    assert (done.code, done.out) == (0, b"")
    assert done.err == (
        "sharegroup: topic 'qzxqzxqz' does not exist yet (list the topics with: sharegroup topics "
        "list)\nsharegroup: processed 0 records\n"
    )


def test_unreachable_broker_is_named_with_advice() -> None:
    done = sharegroup("consume", "t", "--bootstrap", "127.0.0.1:1", "--timeout", "200")
    assert done.code == 1
    assert done.err.startswith("Error: no response from 127.0.0.1:1: ")


def test_broken_pipe_accepts_nothing_that_was_not_written(bootstrap: str, prepare: Prepare) -> None:
    """A reader takes the first bytes of a record larger than a pipe's buffer, and exits."""
    prepare("gone", "gone", b"x" * 500_000)
    with process(bootstrap, "gone", "gone") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.read(10) == b"x" * 10
        child.stdout.close()
        err = child.stderr.read()
    assert child.returncode == 1
    assert b"sharegroup: processed 0 records" in err
    assert b"the records of the last write are released, also those that it has read" in err
    again = consume(bootstrap, "gone", "gone", "--max-messages", "1", "--format", "%V %c")
    assert again.out == b"500000 2"


@pytest.mark.slow
def test_slow_reader_keeps_its_records_beyond_their_lock() -> None:
    """Locks last one second; the reader continues after another consumer has waited for two."""
    settings = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": "1000",
    }
    with run_broker(settings) as broker:
        where = broker.bootstrap_servers
        sharegroup(*at(where, "topics create slow --partitions 1"))
        sharegroup(*at(where, "configs alter --group slow --set share.auto.offset.reset=earliest"))
        sharegroup(*at(where, "produce slow"), stdin=b"x" * 500_000)
        with process(where, "slow", "slow", "--format", r"%v\n") as child:
            assert child.stdout is not None
            assert child.stdout.read(10) == b"x" * 10
            other = sharegroup(*at(where, "consume slow --group slow --timeout-ms 2000"))
            assert other.out == b""
            assert child.stdout.readline() == b"x" * 499_990 + b"\n"
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=HANGING_SECONDS)
        assert (child.returncode, err) == (0, b"sharegroup: processed 1 record\n")
        assert sharegroup(*at(where, "consume slow --group slow --timeout-ms 400")).out == b""


@pytest.mark.slow
def test_group_without_renewal_can_be_consumed() -> None:
    """The reader continues after the lock has ended and another consumer has the record."""
    settings = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": "1000",
    }
    with run_broker(settings) as broker:
        where = broker.bootstrap_servers
        sharegroup(*at(where, "topics create late --partitions 1"))
        for setting in ("share.auto.offset.reset=earliest", "share.renew.acknowledge.enable=false"):
            assert sharegroup(*at(where, f"configs alter --group late --set {setting}")).code == 0
        sharegroup(*at(where, "produce late"), stdin=b"x" * 500_000)
        with process(where, "late", "late", "--format", r"%c%v\n") as child:
            assert child.stdout is not None
            assert child.stdout.read(2) == b"1x"
            other = sharegroup(*at(where, "consume late --group late --max-messages 1 --format %c"))
            assert other.out == b"2"
            assert len(child.stdout.readline()) == 500_000
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=HANGING_SECONDS)
        assert b"sharegroup: auto_renew is now disabled: " in err
        assert err.endswith(b"sharegroup: processed 1 record\n")


def test_full_disk_accepts_nothing(bootstrap: str, prepare: Prepare) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    prepare("full", "full", b"kept")
    words = at(bootstrap, "consume full --group full --max-messages 1")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sharegroup", *words], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert consume(bootstrap, "full", "full", "--max-messages", "1").out == b"kept\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_accepts_all_written_records_and_ends_the_command(
    bootstrap: str, prepare: Prepare, number: signal.Signals
) -> None:
    name = number.name.lower()
    prepare(name, name, b"a", b"b")
    with process(bootstrap, name, name) as child:
        assert child.stdout is not None
        assert os.read(child.stdout.fileno(), 100) == b"a\nb\n"
        child.send_signal(number)
        out, err = child.communicate(timeout=HANGING_SECONDS)
    assert (child.returncode, out, err) == (0, b"", b"sharegroup: processed 2 records\n")
    assert consume(bootstrap, name, name).out == b""


def test_kafkas_properties_print_time_and_epoch(bootstrap: str, prepare: Prepare) -> None:
    prepare("kafka-times", "kafka-times", b"17:v", options=("--format", r"%d:%v\n"))
    properties = [
        word
        for name in ("timestamp", "partition", "delivery", "epoch")
        for word in ("--property", f"print.{name}=true")
    ]
    done = consume(bootstrap, "kafka-times", "kafka-times", "--max-messages", "1", *properties)
    stamp, *others = done.out.decode().rstrip().split("\t")
    assert stamp == "CreateTime:17"
    assert others == ["Partition:0", "Delivery:1", "Epoch:0", "v"]


def test_end_is_told_to_kafkas_system_tests(bootstrap: str, prepare: Prepare) -> None:
    prepare("systest", "systest", b"v")
    events = ("--enable-systest-events", "--max-messages", "1")
    assert consume(bootstrap, "systest", "systest", *events).out == b"v\nshutdown_complete\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("consume", "give at least one topic"),
        ("consume t --release --reject", "exclude each other"),
        ("consume t --json --format %v", "exclude each other"),
        ("consume t --format %q", "%q is not one of"),
        ("consume t --property a=b", "there is no formatter property a"),
        ("consume t --max-messages 0", "0 is not in the range"),
        ("consume t --formatter a.b.LoggingMessageFormatter", "not supported; use --json"),
        (
            "consume __share_group_state --formatter a.b.ShareGroupStateMessageFormatter",
            "use sharegroup tail __share_group_state --decode state",
        ),
        ("consume t --formatter my.Formatter", "use --format or --json"),
        ("consume t --key-deserializer my.LongDeserializer", "or use --format '%k{hex}\\n'"),
        ("consume t --value-deserializer my.LongDeserializer", "or use --format '%v{hex}\\n'"),
        ("consume t --offset earliest", "use sharegroup tail TOPIC --partition N --offsets FIRST:"),
        ("consume t --isolation-level read_committed", "--set share.isolation.level=LEVEL"),
        ("consume t --skip-message-on-error", "use --reject-on-error"),
        ("consume t --command-property auto.offset.reset=earliest", "share.auto.offset.reset"),
    ],
)
def test_options_that_mean_nothing_are_a_misuse(bootstrap: str, words: str, problem: str) -> None:
    refused = sharegroup(*at(bootstrap, words))
    assert refused.code == 2
    assert problem in refused.err.replace("\n", " ")


def test_former_options_of_kafkas_console_consumers_are_accepted(
    bootstrap: str, prepare: Prepare, tmp_path: Path
) -> None:
    prepare("former", "former", b"k=v", options=("--key-separator", "="))
    (tmp_path / "client.properties").write_text("group.id=former\nclient.id=me\n")
    (tmp_path / "formatter.properties").write_text("print.key=true\nkey.separator=:\n")
    words = at(bootstrap, f"consume former --max-messages 1 {PATIENT}")
    strings = "org.apache.kafka.common.serialization.StringDeserializer"
    done = sharegroup(
        *words,
        *("--consumer-config", str(tmp_path / "client.properties")),
        *("--consumer-property", "max.poll.records=1"),
        *("--formatter", "org.apache.kafka.tools.consumer.DefaultMessageFormatter"),
        *("--formatter-config", str(tmp_path / "formatter.properties")),
        *("--key-deserializer", strings, "--value-deserializer", strings),
    )
    assert (done.code, done.out) == (0, b"k:v\n")


def test_two_files_of_client_properties_are_a_misuse(bootstrap: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\n")
    words = ("--consumer-config", str(file), "--command-config", str(file))
    refused = sharegroup(*at(bootstrap, "consume t"), *words)
    assert refused.code == 2
    assert "--consumer-config is --command-config: give only one of them" in refused.err
