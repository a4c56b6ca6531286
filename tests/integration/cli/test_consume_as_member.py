"""``sharegroup consume --group-type consumer`` against a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.integration.cli.piping import PATIENT, Piped, at, sharegroup
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.limits import HANGING_SECONDS
from tests.support.unreadable import produce_batches, untrue

Fill = Callable[..., None]
MEMBER = "--group-type consumer --from-beginning"


@pytest.fixture
def fill(bootstrap: str) -> Fill:
    """Make a topic with one partition and records."""

    def filled(topic: str, *values: bytes) -> None:
        assert sharegroup(*at(bootstrap, f"topics create {topic} --partitions 1")).code == 0
        assert sharegroup(*at(bootstrap, f"produce {topic}"), stdin=b"\n".join(values)).code == 0

    return filled


def consume(bootstrap: str, topic: str, *more: str, group: str = "") -> Piped:
    timeout = PATIENT if "--max-messages" in more else "--timeout-ms 2000"
    words = f"consume {topic} --group {group or topic} {MEMBER} {timeout}"
    return sharegroup(*at(bootstrap, words), *more)


def committed(bootstrap: str, group: str) -> int | None:
    (row,) = json.loads(sharegroup(*at(bootstrap, f"groups describe {group} --json")).out)
    offset: int | None = row["current_offset"]
    return offset


def process(bootstrap: str, topic: str, *more: str) -> subprocess.Popen[bytes]:
    words = at(bootstrap, f"consume {topic} --group {topic} {MEMBER}")
    command = [sys.executable, "-m", "sharegroup", *words, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_written_records_are_committed_and_not_read_again(
    bootstrap: str, fill: Fill, protocol: str
) -> None:
    topic = f"member-{protocol}"
    fill(topic, *(b"%d" % number for number in range(5)))
    chosen = ("--command-property", f"group.protocol={protocol}")
    first = consume(bootstrap, topic, "--max-messages", "3", *chosen)
    assert (first.code, first.out, first.err) == (
        0,
        b"0\n1\n2\n",
        "sharegroup: processed 3 records\n",
    )
    assert committed(bootstrap, topic) == 3
    groups = json.loads(sharegroup(*at(bootstrap, f"groups list --type {protocol} --json")).out)
    assert topic in [group["group"] for group in groups]
    rest = consume(bootstrap, topic, "--max-messages", "2", "--format", r"%o:%v:%c:%i ", *chosen)
    assert rest.out == b"3:3:0:1 4:4:0:2 "


def test_new_group_starts_at_the_end_and_says_so(bootstrap: str, fill: Fill) -> None:
    fill("member-late", b"1", b"2")
    words = "consume member-late --group member-late --group-type consumer --timeout-ms 1000"
    done = sharegroup(*at(bootstrap, words))
    assert (done.code, done.out) == (0, b"")
    assert "starts at the end of member-late: it does not get the 2 records already" in done.err


def test_from_beginning_has_no_effect_on_a_group_with_offsets(bootstrap: str, fill: Fill) -> None:
    fill("member-again", b"1")
    consume(bootstrap, "member-again", "--max-messages", "1")
    done = consume(bootstrap, "member-again")
    assert done.out == b""
    assert "--from-beginning has no effect; to start again: sharegroup groups reset-off" in done.err
    reset = "groups reset-offsets member-again --topic member-again --to-earliest --execute"
    assert sharegroup(*at(bootstrap, reset)).code == 0
    assert consume(bootstrap, "member-again", "--max-messages", "1").out == b"1\n"


def test_missing_topic_is_named_and_not_created(bootstrap: str) -> None:
    done = consume(bootstrap, "member-mistyped")
    assert (done.code, done.out) == (0, b"")
    assert "topic 'member-mistyped' does not exist yet" in done.err
    assert b"member-mistyped" not in sharegroup(*at(bootstrap, "topics list")).out


def test_record_that_cannot_be_formatted_ends_the_run_in_front_of_it_or_is_skipped(
    bootstrap: str, fill: Fill
) -> None:
    fill("member-poison", b"1", b"no json", b"2")
    options = ("--max-messages", "3", "--format", r"%v{json}\n")
    stopped = consume(bootstrap, "member-poison", *options)
    assert (stopped.code, stopped.out) == (1, b"1\n")
    assert "Error: topic 'member-poison' partition 0 offset 1: not a JSON document" in stopped.err
    assert "with --skip-message-on-error it is skipped" in stopped.err
    assert committed(bootstrap, "member-poison") == 1
    options = ("--max-messages", "2", *options[2:], "--skip-message-on-error")
    done = consume(bootstrap, "member-poison", *options)
    assert (done.code, done.out) == (0, b"2\n")
    assert done.err.endswith("sharegroup: processed 2 records, 1 of them skipped\n")
    assert committed(bootstrap, "member-poison") == 3


@pytest.mark.skipif(chosen() == KAFKA, reason="Kafka refuses such batches")
def test_offsets_that_cannot_be_read_end_the_run_or_are_skipped(bootstrap: str, fill: Fill) -> None:
    fill("member-damaged", b"1")
    produce_batches(bootstrap, "member-damaged", untrue())
    sharegroup(*at(bootstrap, "produce member-damaged"), stdin=b"2")
    stopped = consume(bootstrap, "member-damaged", "--max-messages", "2")
    assert (stopped.code, stopped.out) == (1, b"1\n")
    assert "cannot be read" in stopped.err
    assert "--skip-message-on-error" in stopped.err
    done = consume(bootstrap, "member-damaged", "--max-messages", "1", "--skip-message-on-error")
    assert (done.code, done.out) == (1, b"2\n")
    assert "range of offsets could not be read" in done.err or "ranges of offsets" in done.err


@pytest.mark.slow
def test_broken_pipe_commits_nothing_that_was_not_written(bootstrap: str, fill: Fill) -> None:
    """A reader takes the first bytes of a record larger than a pipe's buffer, and exits."""
    fill("member-gone", b"x" * 500_000)
    with process(bootstrap, "member-gone") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.read(10) == b"x" * 10
        child.stdout.close()
        err = child.stderr.read()
    assert child.returncode == 1
    assert b"the offsets of the last write are not committed, so its records are read again" in err
    again = consume(bootstrap, "member-gone", "--max-messages", "1", "--format", "%V")
    assert again.out == b"500000"


@pytest.mark.slow
def test_signal_commits_what_is_written_and_leaves_the_group(bootstrap: str, fill: Fill) -> None:
    fill("member-signal", b"a", b"b")
    with process(bootstrap, "member-signal") as child:
        assert child.stdout is not None
        assert os.read(child.stdout.fileno(), 100) == b"a\nb\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=HANGING_SECONDS)
    assert (child.returncode, out, err) == (0, b"", b"sharegroup: processed 2 records\n")
    assert committed(bootstrap, "member-signal") == 2
    deleted = sharegroup(*at(bootstrap, "groups delete member-signal"))
    assert (deleted.code, deleted.err) == (0, ""), "the group has no members"


def test_share_group_is_not_joined_as_a_consumer_group(bootstrap: str, fill: Fill) -> None:
    fill("member-share", b"a")
    reset = "groups reset-offsets member-share --topic member-share --to-earliest --execute"
    assert sharegroup(*at(bootstrap, reset)).code == 0
    refused = consume(bootstrap, "member-share")
    says = "Error: GroupIdNotFound: group 'member-share' is a share group, not a consumer group: "
    assert (refused.code, refused.err.startswith(says)) == (1, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--release", "--release is for share groups: a consumer group commits offsets"),
        ("--reject", "--reject is for share groups"),
        ("--accept", "--accept is for share groups"),
        ("--reject-on-error", "--skip-message-on-error leaves out such records"),
        ("--isolation-level read_committed", "--command-property isolation.level=LEVEL"),
    ],
)
def test_options_of_share_groups_are_a_misuse(bootstrap: str, words: str, problem: str) -> None:
    refused = sharegroup(*at(bootstrap, f"consume t --group-type consumer {words}"))
    assert refused.code == 2
    assert problem in refused.err.replace("\n", " ")
