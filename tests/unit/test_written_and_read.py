"""What one part of the project writes, the part that reads it takes, at the extremes too.

Every header, file, offset, line and text that is written by one part and read by another has a row
in `PAIRS`.  A limit that a reader enforces and its writer does not is an error: the record loses
its story, the query its checkpoint, the operator a list of what was done.

To add a pair: write its row, and a test that lets Hypothesis choose the values, with the strategies
of this module.  If the writer has to be called in another folder, the test is there.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import example, given, strategies as st

from sharegroup.broker.cluster.acl_entries import AclEntries
from sharegroup.broker.cluster.catalog import decode_event, encode_event
from sharegroup.broker.share.dead_letter_records import OriginalPartition, letter_batch
from sharegroup.cli.common.log_positions import csv_text, read_plan
from sharegroup.cli.records.formats.reading import LineReader, NewRecord, json_record
from sharegroup.cli.records.formats.writing import json_writer
from sharegroup.client.records import TopicPartition
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.core.delivery.delivery import DeadLetterRange, Reason
from sharegroup.core.log.producer_state import ProducedBatch, ProducerEntry
from sharegroup.core.security.acls import Acl
from sharegroup.dead_letters import ledger
from sharegroup.dead_letters.letter import Letter, letter_of
from sharegroup.dead_letters.letter_documents import letter_document
from sharegroup.dead_letters.queue import Chunk
from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.dead_letters.story import Attempt, RecordOrigin, Story
from sharegroup.dead_letters.story_headers import (
    ATTEMPTS_BYTES_MAX,
    NUMBER_MAX,
    own_headers,
    story_headers,
    story_of,
)
from sharegroup.dead_letters.topics import is_topic_name, own_topic
from sharegroup.durations import DELAY_DAYS_MAX, seconds
from sharegroup.ids import GroupId, TopicId, TopicIdPartition, TopicName
from sharegroup.protocol_enums import (
    AcknowledgeType,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from sharegroup.record_documents import Row, json_line
from sharegroup.spark.carry import Carry
from sharegroup.spark.decision_files import (
    STRONGEST_FIRST,
    DecisionFiles,
    folder_of,
    write_decisions,
)
from sharegroup.spark.letters.rows import letter_rows
from sharegroup.spark.offsets import StreamOffset, Subscription, parse
from sharegroup.storage.directory.journal import (
    journal_content,
    read_clean_shutdown,
    whole_payloads,
    write_clean_shutdown,
)
from sharegroup.storage.disk.checkpoint_files import read_checkpoint, write_checkpoint
from sharegroup.storage.disk.files import RealFiles
from sharegroup.storage.disk.metadata_files import (
    PartitionMetadata,
    decode_partition_metadata,
    encode_partition_metadata,
)
from sharegroup.storage.recovery.producer_snapshot import decode_producers, encode_producers
from sharegroup.wire.batches.batches import parse_header
from sharegroup.wire.batches.record_walk import finish
from sharegroup.wire.batches.records import decode_records
from sharegroup.worker.dead_letters import Buried, letter_headers
from sharegroup.worker.decisions.decide import Bury
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declarations.checks import dead_topic
from sharegroup.worker.lifecycle import pid_files
from sharegroup.worker.lifecycle.pid_files import PidFile
from sharegroup.worker.retrying.tier_log import TierRecord
from sharegroup.worker.retrying.waiting import Moment, first_write, next_write, waiting_of
from tests.support.sent_back import sent_back_headers
from tests.unit.worker.deliveries import FakeDelivery

DELAY_MS_MAX = DELAY_DAYS_MAX * 24 * 60 * 60 * 1000


class Pair(NamedTuple):
    """A writer and a reader, as `module:name`, and the test, as `file::test`, of what passes."""

    what: str
    writer: str
    reader: str
    test: str


HERE = "tests/unit/test_written_and_read.py"
WIRE = "tests/unit/wire"
JOBS = "tests/unit/jobs/test_job_records.py"
PAIRS = (
    # The worker's headers.
    Pair(
        "story headers in retry topics and dead letters",
        "dead_letters.story_headers:story_headers", "dead_letters.story_headers:story_of",
        f"{HERE}::test_story",
    ),
    Pair(
        "commands for waiting records, and their answers",
        "waiting.control_records:encoded", "waiting.control_records:parsed",
        "tests/unit/waiting/test_control_records.py::test_control_record_survives_a_round_trip",
    ),
    Pair(
        "heartbeats of worker processes",
        "fleet.heartbeats:encoded", "fleet.heartbeats:parsed",
        "tests/unit/fleet/test_fleet_records.py::test_heartbeat_survives_a_round_trip",
    ),
    Pair(
        "commands for worker processes",
        "fleet.commands:encoded", "fleet.commands:parsed",
        "tests/unit/fleet/test_fleet_records.py::test_command_survives_a_round_trip",
    ),
    Pair(
        "schedules, their declarations, commands and owners",
        "schedules.schedule_records:encoded", "schedules.schedule_records:parsed",
        "tests/unit/schedules/test_schedule_records.py::test_what_is_written_is_read_back",
    ),
    Pair(
        "the id of a run of a schedule, in a header",
        "schedules.schedule:run_id", "schedules.schedule:parsed_run",
        "tests/unit/schedules/test_schedule_records.py::test_the_id_of_a_run_is_read_back",
    ),
    Pair(
        "a record in the own topic: run, or a dead letter",
        "worker.retrying.postponer:Postponer", "worker.running.record_routing:RecordRouting",
        "tests/unit/worker/running/test_own_topic.py"
        "::test_record_with_any_headers_becomes_exactly_one_dead_letter",
    ),
    Pair(
        "due time, delay and time of writing in tiers",
        "worker.retrying.waiting:first_write", "worker.retrying.waiting:waiting_of",
        f"{HERE}::test_tier_headers",
    ),
    Pair(
        "offsets done out of order, in the scheduler's commits",
        "waiting.done_offsets:written", "waiting.done_offsets:read",
        "tests/unit/waiting/test_done_offsets.py::test_done_offsets_survive_a_round_trip",
    ),
    Pair(
        "metadata of the commits of a worker's consumer group",
        "worker.consuming.commit_metadata:written", "worker.consuming.commit_metadata:read",
        "tests/unit/worker/consuming/test_commit_metadata.py::test_metadata_is_read_as_it_was_written",
    ),
    Pair(
        "dead-letter headers of a worker",
        "worker.dead_letters:letter_headers", "dead_letters.letter:letter_of",
        f"{HERE}::test_letter",
    ),
    Pair(
        "headers of a redriven record",
        "dead_letters.redrive_copies:sent_back_content", "dead_letters.story_headers:story_of",
        f"{HERE}::test_redriven",
    ),
    Pair(
        "the redrive ledger",
        "dead_letters.ledger:Ledger", "dead_letters.ledger:parsed", f"{HERE}::test_ledger",
    ),
    Pair(
        "the record of a job", "jobs.job_records:encoded_job", "jobs.job_records:parsed_job",
        f"{JOBS}::test_job",
    ),
    Pair(
        "the request to abort a job",
        "jobs.job_records:encoded_abort", "jobs.job_records:parsed_abort",
        f"{JOBS}::test_abort_request",
    ),
    Pair(
        "the filter of a job",
        "jobs.filters:FilterForm.document", "jobs.filters:FilterForm.parsed",
        f"{JOBS}::test_filter_of_a_job",
    ),
    Pair(
        "the options of a redrive in a job",
        "jobs.filters:options_document", "jobs.filters:options_of",
        f"{JOBS}::test_options_of_a_job",
    ),
    Pair(
        "the result of a redrive in a job",
        "jobs.redrive_results:redriven_document", "jobs.redrive_results:redriven_of",
        f"{JOBS}::test_result_of_a_job",
    ),
    Pair(
        "history of the console, in topics and in its file",
        "console.remember.blocks:packed", "console.remember.blocks:parsed",
        "tests/unit/console/remember/test_blocks.py::test_block",
    ),
    Pair(
        "names of topics after groups and dead-letter topics",
        "dead_letters.ledger:ledger_topic", "dead_letters.topics:is_topic_name",
        f"{HERE}::test_names_of_derived_topics_are_names_of_topics",
    ),
    Pair(
        "payloads of a sender",
        "worker.payloads.json_values:json_functions", "worker.payloads.codec:HandlerCodec",
        "tests/unit/worker/payloads/test_read_back.py"
        "::test_whatever_is_sent_without_types_is_read_equal",
    ),
    Pair(
        "names of tiers, which `worker plan` prints and `retry_tiers` takes",
        "worker.decisions.tiers:Tiers", "durations:seconds", f"{HERE}::test_tier_names",
    ),
    Pair(
        "the pid file of a worker",
        "worker.lifecycle.pid_files:PidFile", "worker.lifecycle.pid_files:worker_of",
        f"{HERE}::test_pid_file",
    ),
    Pair(
        "dead letters as rows of Spark",
        "dead_letters.story_headers:story_headers", "spark.letters.rows:letter_rows",
        f"{HERE}::test_letter_rows",
    ),
    # The command line.
    Pair(
        "tail, consume --json | produce --json",
        "cli.records.formats.writing:json_writer", "cli.records.formats.reading:json_record",
        f"{HERE}::test_json_lines",
    ),
    Pair(
        "dlq export | produce --json", "dead_letters.letter_documents:letter_document",
        "cli.records.formats.reading:json_record", f"{HERE}::test_export",
    ),
    Pair(
        "--format of tail and consume, and of produce",
        "cli.records.formats.writing:template_writer", "cli.records.formats.reading:TemplateReader",
        "tests/unit/cli/test_produce_formats.py"
        "::test_length_prefixed_bytes_survive_a_round_trip",
    ),
    Pair(
        "groups reset --export and --from-file", "cli.common.log_positions:csv_text",
        "cli.common.log_positions:read_plan", f"{HERE}::test_reset_plan",
    ),
    # Spark.
    Pair(
        "offset and carry in a checkpoint",
        "spark.offsets:StreamOffset", "spark.offsets:parse", f"{HERE}::test_checkpoint",
    ),
    Pair(
        "decision files",
        "spark.decision_files:write_decisions", "spark.decision_files:DecisionFiles",
        f"{HERE}::test_decisions",
    ),
    Pair(
        "records that the driver keeps for executors",
        "spark.kept_records:Keeper", "spark.kept_records:opened",
        "tests/unit/spark/test_kept_records.py::test_kept_records_are_read_without_a_broker",
    ),
    # Record batches.
    Pair(
        "a batch of our producer",
        "wire.batches.records:encode_batch", "wire.batches.records:decode_records",
        f"{WIRE}/test_records.py::test_any_timestamps_can_be_beside_each_other_in_a_batch",
    ),
    # The broker's own files and topics.
    Pair(
        "records of groups, share state, offsets and transactions",
        "wire.internal_topics.coordinator_records:encode_value",
        "wire.internal_topics.coordinator_records:decode_record",
        f"{WIRE}/test_coordinator_records.py::test_any_record_is_read_back",
    ),
    Pair(
        "dead letters of the broker",
        "broker.share.dead_letter_records:letter_batch", "dead_letters.letter:letter_of",
        f"{HERE}::test_letter_of_the_broker",
    ),
    Pair(
        "ACLs in the catalog",
        "broker.cluster.acl_entries:AclEntries", "broker.cluster.catalog:decode_event",
        f"{HERE}::test_acls",
    ),
    Pair(
        "snapshots of producers",
        "storage.recovery.producer_snapshot:encode_producers",
        "storage.recovery.producer_snapshot:decode_producers", f"{HERE}::test_producer_snapshot",
    ),
    Pair(
        "checkpoints of offsets",
        "storage.disk.checkpoint_files:write_checkpoint",
        "storage.disk.checkpoint_files:read_checkpoint", f"{HERE}::test_offset_checkpoint",
    ),
    Pair(
        "the topic of a partition's folder",
        "storage.disk.metadata_files:encode_partition_metadata",
        "storage.disk.metadata_files:decode_partition_metadata",
        f"{HERE}::test_partition_metadata",
    ),
    Pair(
        "payloads of a journal",
        "storage.directory.journal:journal_content", "storage.directory.journal:whole_payloads",
        f"{HERE}::test_journal",
    ),
    Pair(
        "events of the catalog",
        "broker.cluster.catalog:encode_event", "broker.cluster.catalog:decode_event",
        f"{HERE}::test_catalog_event",
    ),
    Pair(
        "marks of journals at a clean shutdown",
        "storage.directory.journal:write_clean_shutdown",
        "storage.directory.journal:read_clean_shutdown", f"{HERE}::test_clean_shutdown",
    ),
)  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.what)
def test_pair_exists(pair: Pair) -> None:
    for name in (pair.writer, pair.reader):
        module, _, attribute = name.partition(":")
        assert attrgetter(attribute)(import_module(f"sharegroup.{module}")), name
    file, _, test = pair.test.partition("::")
    body = ast.parse((Path(__file__).parents[2] / file).read_text()).body
    assert test in {node.name for node in body if isinstance(node, ast.FunctionDef)}, pair.test


# Values.  Each strategy goes to the limits of what is written, and one step beyond for claims.

times = st.sampled_from([-(2**63), -1, 0, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
counts = st.sampled_from([0, 1, NUMBER_MAX, NUMBER_MAX + 1]) | st.integers(0, 2**64)
offsets = st.sampled_from([-1, 0, 2**63 - 1]) | st.integers(-1, 2**63 - 1)
partitions = st.sampled_from([0, 2**31 - 1]) | st.integers(0, 2**31 - 1)
topics = st.text("aZ09._-", min_size=1, max_size=249) | st.just("x" * 249)
groups = topics.map(lambda name: name[:220])
odd_texts = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
    ["", "\0", "\u2028", "\ud800", "x" * 600, "\U0010ffff" * 500]
)
contents = st.none() | st.binary(max_size=20) | st.sampled_from([b"", b"\0", b"\xff", b"\n"])
names = st.text(st.characters(codec="utf-8"), max_size=20).filter(
    lambda name: not name.startswith(("__sharegroup.", "__dlq."))
)
headers = st.lists(st.tuples(names, contents), max_size=4).map(tuple)
origins = st.builds(RecordOrigin, topics, st.just(-1) | partitions, offsets, times)
attempts = st.builds(
    Attempt, st.integers(1, 2**64), st.integers(0, 2**63 - 1), odd_texts, odd_texts, odd_texts
)
stories = st.builds(
    Story,
    origin=origins,
    failures=counts,
    attempts=st.lists(attempts, max_size=25).map(tuple),
    due_ms=st.none() | st.integers(0, 2**63 - 1),
    redrives=counts,
    redrive_id=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=250),
    unrouted=counts,
    suspicions=counts,
    trace=st.none() | st.just("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
)


def clamped(story: Story) -> Story:
    """The story with counts as large as a header may be, and the attempts that are kept."""
    kept = tuple(
        attempt._replace(number=min(attempt.number, NUMBER_MAX)) for attempt in story.attempts[-20:]
    )
    return replace(
        story,
        failures=min(story.failures, NUMBER_MAX),
        redrives=min(story.redrives, NUMBER_MAX),
        unrouted=min(story.unrouted, NUMBER_MAX),
        suspicions=min(story.suspicions, NUMBER_MAX),
        attempts=kept,
    )


class Stored(NamedTuple):
    """A decoded record."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


# The worker's headers.


@given(story=stories, own=headers)
def test_story(story: Story, own: tuple[tuple[str, bytes | None], ...]) -> None:
    assert story.origin is not None
    written = (*own, *story_headers(story, story.origin))
    assert story_of(written) == clamped(story)
    assert own_headers(written) == own


def test_story_with_attempts_that_are_too_long_keeps_the_latest_and_all_counts() -> None:
    """The name of an application's class has no limit."""
    long = Attempt(1, 0, "x" * (ATTEMPTS_BYTES_MAX // 2), "", "")
    story = Story(RecordOrigin("t", 0, 0, 0), 7, (long._replace(number=5), long), redrives=3)
    assert story.origin is not None
    assert story_of(story_headers(story, story.origin)) == replace(story, attempts=(long,))
    endless = replace(story, attempts=(long._replace(error="x" * ATTEMPTS_BYTES_MAX),))
    assert story_of(story_headers(endless, story.origin)) == replace(story, attempts=())


@given(
    own=headers,
    now_ms=st.integers(0, 2**42),
    delay_ms=st.integers(0, DELAY_MS_MAX),
    later_ms=st.integers(-1000, DELAY_MS_MAX),
)
def test_tier_headers(
    own: tuple[tuple[str, bytes | None], ...], now_ms: int, delay_ms: int, later_ms: int
) -> None:
    """Each move to another tier is read back with the due time and the delay of the first."""
    tiers, due_ms = Tiers.of((5, 60)), now_ms + delay_ms
    story = story_headers(Story(due_ms=due_ms), RecordOrigin("t", 0, 0, 0))
    write = first_write((*own, *story), due_ms=due_ms, now_ms=now_ms, group="g", tiers=tiers)
    now = Moment(now_ms, 0)
    waiting = waiting_of(TierRecord(0, now_ms, None, None, write.headers), now)
    assert (waiting.due_ms, waiting.delay_ms, waiting.age_ms) == (delay_ms, delay_ms, 0)
    moved_at = Moment(max(0, now_ms + later_ms), max(0, now_ms + later_ms) - now_ms)
    moved = next_write(waiting, now=moved_at, group="g", tiers=tiers)
    again = waiting_of(TierRecord(0, moved_at.wall_ms, None, None, moved.headers), moved_at)
    assert again.due_ms == delay_ms
    assert own_headers(moved.headers) == own


@given(
    story=stories, own=headers, group=groups, handler=odd_texts, member=odd_texts,
    reason=st.sampled_from(
        [reason for reason in DeadLetterReason if reason is not DeadLetterReason.UNKNOWN]
    ),
    error=st.none() | st.builds(ValueError, odd_texts),
    shrunk=st.booleans(), now_ms=st.integers(0, 2**63 - 1),
)  # fmt: skip
def test_letter(
    story: Story, own: tuple[tuple[str, bytes | None], ...], group: str, handler: str, member: str,
    reason: DeadLetterReason, error: Exception | None, shrunk: bool, now_ms: int,
) -> None:  # fmt: skip
    delivery = FakeDelivery(headers=(*own, *story_headers(story, story.origin or ORIGIN)))
    by = Buried(group, handler, member)
    written = letter_headers(delivery, Bury(story, reason, error), by, now_ms=now_ms, shrunk=shrunk)
    letter = letter_of("g.dead", 0, Stored(3, 5, b"k", b"v", written))
    expected = replace(
        clamped(story), due_ms=None, attempts=() if shrunk else clamped(story).attempts
    )
    assert letter.story == expected
    assert tuple(letter.headers) == own
    assert (letter.death.reason, letter.death.group) == (reason, group)
    assert letter.death.last_failure_ms == (story.attempts[-1].at_ms if story.attempts else now_ms)
    assert letter.tells_story


ORIGIN = RecordOrigin("orders", 0, 7, 0)


def letter_from(story: Story, own: Sequence[tuple[str, bytes | None]], group: str) -> Letter:
    delivery = FakeDelivery(headers=tuple(own))
    step = Bury(story, DeadLetterReason.REJECTED)
    written = letter_headers(delivery, step, Buried(group, "h", "m"), now_ms=0, shrunk=False)
    return letter_of("d" * 249, 2**31 - 1, Stored(2**63 - 1, -5, None, None, written))


@given(story=stories, own=headers, group=groups)
def test_letter_rows(story: Story, own: tuple[tuple[str, bytes | None], ...], group: str) -> None:
    """Times that Spark's microseconds cannot hold are cut; lone surrogates are escaped."""
    letter = letter_from(story, own, group)
    rows_of_letter = letter_rows(Chunk(0, [letter], frozenset(), 1))
    origin = letter.story.origin
    assert origin is not None
    found = rows_of_letter["origin"]
    assert found.field("offset").to_pylist() == [origin.offset]
    assert found.field("timestamp").is_null().to_pylist() == [origin.timestamp_ms == -1]
    assert len(rows_of_letter["attempts"][0]) == len(letter.story.attempts)
    assert rows_of_letter["headers"].to_pylist() == [
        [{"key": name, "value": value} for name, value in own] or None
    ]


@given(story=stories, own=headers, group=groups, again=st.sampled_from(["", f"@{2**63 - 1}"]))
@example(
    story=Story(RecordOrigin("t" * 249, 2**31 - 1, 2**63 - 1, -(2**63)), redrives=NUMBER_MAX),
    own=(), group="g" * 220, again=f"@{2**63 - 1}",
)  # fmt: skip
def test_redriven(
    story: Story, own: tuple[tuple[str, bytes | None], ...], group: str, again: str
) -> None:
    """A worker's letter; its copy keeps the origin, and one redrive more is counted."""
    letter = letter_from(story, own, group)
    read = story_of(sent_back_headers(letter, letter.redrive_id + again))
    assert read.origin == story.origin
    assert read.redrives == min(story.redrives + 1, NUMBER_MAX)
    assert read.redrive_id == letter.redrive_id + again
    assert (read.failures, read.unrouted, read.suspicions, read.due_ms) == (0, 0, 0, None)


@given(
    topic=st.binary(max_size=9) | st.just(b"\xff" * 1024) | st.just(b"t" * 249), dead_id=contents
)
@example(topic=b"t", dead_id=b"\xff" * 500)
def test_redriven_letter_of_another_program_is_read(topic: bytes, dead_id: bytes | None) -> None:
    """A broker's letter, or a forged one: bytes that are not UTF-8 grow when they are replaced."""
    letter = letter_of(
        "d", 0,
        Stored(0, 0, None, b"v", [
            ("__dlq.errors.topic", topic), ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"7"), ("__dlq.errors.group", b"g"),
            ("__sharegroup.dead.id", dead_id),
        ]),
    )  # fmt: skip
    if letter.has_origin:
        read = story_of(sent_back_headers(letter, letter.redrive_id))
        assert (read.origin, read.redrive_id) == (letter.story.origin, letter.redrive_id)
        assert read.redrives == 1


@given(
    topic_id=st.uuids(), partition=partitions,
    done=st.lists(st.integers(0, 2**63 - 1), max_size=9, unique=True).map(sorted),
)  # fmt: skip
def test_ledger(topic_id: UUID, partition: int, done: list[int]) -> None:
    ranges = tuple(ledger.runs_of(done))
    written = ledger.encoded(str(topic_id), partition, ranges, {"at_ms": 2**63, "to": ["x" * 249]})
    assert ledger.parsed(written) == ledger.Entry(str(topic_id), partition, ranges)


@given(group=groups, letters=topics, tiers=st.lists(st.integers(1, DELAY_MS_MAX), min_size=1))
@example(group="g" * 220, letters="d" * 249, tiers=[DELAY_MS_MAX - 1])
def test_names_of_derived_topics_are_names_of_topics(
    group: str, letters: str, tiers: list[int]
) -> None:
    derived = [
        ledger.ledger_topic(letters), own_topic(group), dead_topic(group),
        *Tiers.of([delay_ms / 1000 for delay_ms in tiers]).topics(group),
    ]  # fmt: skip
    assert [name for name in derived if not is_topic_name(name)] == []
    assert ledger.ledger_topic("orders.dead") == "orders.dead.redriven"
    assert ledger.ledger_topic("d" * 249) != ledger.ledger_topic("d" * 248)


@given(st.lists(st.integers(1, DELAY_MS_MAX), min_size=1, max_size=6, unique=True))
def test_tier_names(delays_ms: list[int]) -> None:
    tiers = Tiers.of([delay_ms / 1000 for delay_ms in delays_ms]).tiers
    assert [tier.delay_ms for tier in tiers] == sorted(delays_ms, reverse=True)
    assert [round(seconds(tier.name) * 1000) for tier in tiers] == [tier.delay_ms for tier in tiers]


def test_pid_file(tmp_path: Path) -> None:
    """Of a worker with many groups; the lock of one's own file cannot be tested in one process."""
    facts = {"app": "\ud800\u2028", "groups": [f"{index:0220}" for index in range(10_000)]}
    path = tmp_path / "app.1"
    file = PidFile(path)
    file.write(facts)
    worker = pid_files._parsed(path)
    file.close()
    assert worker is not None
    assert worker.facts == facts


# The command line.


rows = st.builds(
    Row, topics, partitions, offsets, times, contents, contents, headers,
    st.integers(0, 2**15 - 1), times, times,
)  # fmt: skip


@given(st.lists(rows, max_size=4))
def test_json_lines(some: list[Row]) -> None:
    text = b"".join(map(json_writer(), some))
    assert text.count(b"\n") == len(some)
    reader = LineReader(json_record)
    assert [*reader.feed(text), *reader.finish()] == [
        NewRecord(row.key, row.value, tuple(row.headers), row.partition, row.timestamp_ms)
        for row in some
    ]


@given(story=stories, own=headers, group=groups)
def test_export(story: Story, own: tuple[tuple[str, bytes | None], ...], group: str) -> None:
    """`dlq export` writes the letter as a record; messages with lone surrogates stay JSON."""
    letter = letter_from(story, own, group)
    row = letter_document(letter, redriven=False)
    read = json_record(json_line(row))
    assert (read.key, read.value, read.headers) == (letter.key, letter.value, tuple(letter.headers))
    assert (read.partition, read.timestamp_ms) == (letter.partition, letter.timestamp_ms)
    attempts = json.loads(json_line(row))["attempts"]
    assert [Attempt(**attempt) for attempt in attempts] == list(letter.story.attempts)


@given(
    st.dictionaries(
        st.builds(TopicPartition, topics, partitions), st.integers(0, 2**63 - 1), max_size=4
    )
)
def test_reset_plan(tmp_path_factory: pytest.TempPathFactory, plan: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "plan.csv"
    path.write_text(csv_text(plan))
    assert read_plan(path) == plan


# Spark.


# Three beside each other become one run, which a share partition holds.
runs = st.lists(
    st.tuples(st.integers(0, 2**61), st.integers(1, 2**31 // 3), st.integers(-(2**15), 2**15 - 1)),
    min_size=1, max_size=3,
)  # fmt: skip
places = st.builds(TopicIdPartition, st.sampled_from([UUID(int=1), UUID(int=2)]), partitions)
NAMES = {TopicId(UUID(int=number)): TopicName("x" * 249) for number in (1, 2)}


def acquired_of(steps: list[tuple[int, int, int]]) -> tuple[AcquiredRecords, ...]:
    acquired, reached = [], 0
    for gap, length, count in steps:
        acquired.append(AcquiredRecords.of_range(reached + gap, reached + gap + length, count))
        reached += gap + length
    return tuple(acquired)


@given(
    acquired=st.dictionaries(places, runs.map(acquired_of), max_size=3),
    accept=st.dictionaries(places, runs.map(acquired_of), max_size=3),
    seq=st.integers(1, 2**63 - 1),
    group=odd_texts,
    decides=st.booleans(),
)
@example(
    acquired={TopicIdPartition(UUID(int=1), 0): (AcquiredRecords(2**63 - 1, 2**63 - 1, 0),)},
    accept={}, seq=1, group="g", decides=True,
)  # fmt: skip
def test_checkpoint(acquired: Any, accept: Any, seq: int, group: str, decides: bool) -> None:
    """A broker may claim any delivery count; those below 1 are logged as 1."""
    subscription = Subscription(group, ("x" * 249,))
    carry = Carry(accept={
        place: OffsetSet.of((run.first_offset, run.end_offset) for run in held)
        for place, held in accept.items()
    })  # fmt: skip
    offset = StreamOffset(subscription, seq, "q" * 64, "l" * 64, acquired, carry, NAMES, decides)
    read = parse(json.loads(json.dumps(offset.to_json())), subscription)
    assert read.decides == decides
    assert (read.seq, read.query, read.load, read.carry) == (seq, "q" * 64, "l" * 64, carry)
    assert read.acquired == {
        place: tuple(run._replace(delivery_count=max(1, run.delivery_count)) for run in held)
        for place, held in acquired.items()
    }


@given(steps=runs, partition=partitions, kind=st.sampled_from(STRONGEST_FIRST), group=odd_texts)
def test_decisions(
    tmp_path_factory: pytest.TempPathFactory, steps: Any, partition: int,
    kind: AcknowledgeType, group: str,
) -> None:  # fmt: skip
    location = str(tmp_path_factory.mktemp("decisions"))
    place = TopicIdPartition(TopicId(UUID(int=1)), partition)
    held = acquired_of(steps)
    batch = StreamOffset(
        Subscription(group, ("x" * 249,)), 2**63 - 1, "q" * 64, "l" * 64, {place: held}, names=NAMES
    )
    decided = OffsetSet.of((run.first_offset, run.end_offset) for run in held)
    write_decisions(folder_of(location, group, "l" * 64), {("x" * 249, partition): {kind: decided}})
    files = DecisionFiles(location, group, "l" * 64)
    assert files.outcomes(batch) == {place: {kind: decided}}
    assert files.outcomes(batch) == {place: {kind: decided}}, "once more, from the marked file"


# The broker's own files.


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | odd_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_texts, inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(odd_texts, values, max_size=4))
def test_catalog_event(event: dict[str, Any]) -> None:
    assert decode_event(encode_event(event)) == event


@given(
    st.dictionaries(
        odd_texts, st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1)), max_size=3
    )
)
def test_clean_shutdown(tmp_path_factory: pytest.TempPathFactory, marks: Any) -> None:
    root, files = str(tmp_path_factory.getbasetemp()), RealFiles()
    write_clean_shutdown(files, root, marks)
    assert read_clean_shutdown(files, root) == marks


acls = st.builds(
    Acl, st.sampled_from(AclResourceType), st.sampled_from(AclPatternType), odd_texts, odd_texts,
    odd_texts, st.sampled_from(AclOperation),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)  # fmt: skip


@given(st.lists(acls, max_size=70, unique=True))
def test_acls(some: list[Acl]) -> None:
    written = [encode_event(event) for event in AclEntries().created(some)]
    entries = AclEntries()
    for line in written:
        entries.replay(decode_event(line))
    assert set(entries.acls.entries()) == set(some)
    for event in entries.deleted(some):
        entries.replay(decode_event(encode_event(event)))
    assert not list(entries.acls.entries())


class CopiedOriginal:
    """What the broker copies into a letter."""

    def __init__(self, original: Stored | str) -> None:
        self.original = original

    def at(self, offset: int) -> Any:
        yield from ()
        return self.original


@given(
    group=st.text(st.characters(codec="utf-8"), max_size=249), topic=topics, partition=partitions,
    first=st.integers(0, 2**63 - 2), count=st.integers(0, 2**15 - 1),
    reason=st.sampled_from(list(Reason)), key=contents, value=contents, own=headers,
    forged=st.lists(
        st.tuples(
            st.sampled_from(["__dlq.errors.topic", "__dlq.errors.offset", "__sharegroup.dead.id"]),
            contents,
        ),
        max_size=3,
    ),
)  # fmt: skip
def test_letter_of_the_broker(
    group: str, topic: str, partition: int, first: int, count: int, reason: Reason,
    key: bytes | None, value: bytes | None, own: tuple[tuple[str, bytes | None], ...],
    forged: list[tuple[str, bytes | None]],
) -> None:  # fmt: skip
    """The headers that its record has cannot change what the broker says."""
    original = Stored(first, 0, key, value, (*own, *forged))
    walk = letter_batch(
        [DeadLetterRange(first, first + 1, count, reason)],
        OriginalPartition(GroupId(group), TopicName(topic), partition),
        CopiedOriginal(original),  # type: ignore[arg-type]
        bytes_max=2**20,
        wall_ms=2**41,
    )
    batch = finish(walk).batch
    (record,) = decode_records(batch)
    letter = letter_of("dlq", 0, record, is_vouched=parse_header(batch).is_letter)
    assert letter.is_vouched
    assert letter.story.origin is not None
    assert letter.story.origin[:3] == (topic, partition, first)
    assert (letter.death.group, letter.death.delivery_count) == (group, count)
    assert (letter.key, letter.value, tuple(letter.headers)) == (key, value, own)


produced = st.builds(
    lambda sequence, offset, size: ProducedBatch(sequence, offset, offset + size),
    st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.integers(1, 2**31 - 1),
)  # fmt: skip
producers = st.builds(
    ProducerEntry, st.integers(0, 2**15 - 1), st.lists(produced, max_size=5).map(tuple), times,
    st.integers(-1, 2**31 - 1), st.none() | st.integers(0, 2**63 - 1),
)  # fmt: skip


@given(st.dictionaries(st.integers(0, 2**63 - 1), producers, max_size=4), places)
def test_producer_snapshot(entries: dict[int, ProducerEntry], place: TopicIdPartition) -> None:
    assert decode_producers(encode_producers(entries, place), place) == entries


@given(st.dictionaries(places, st.integers(0, 2**63 - 1), max_size=9))
def test_offset_checkpoint(tmp_path_factory: pytest.TempPathFactory, offsets_of: Any) -> None:
    root, files = str(tmp_path_factory.getbasetemp()), RealFiles()
    write_checkpoint(files, root, "checkpoint", offsets_of)
    assert read_checkpoint(files, root, "checkpoint") == offsets_of


@given(st.uuids(), topics, st.integers(1, 2**31 - 1))
def test_partition_metadata(topic_id: UUID, topic: str, count: int) -> None:
    written = PartitionMetadata(TopicId(topic_id), TopicName(topic), count)
    assert decode_partition_metadata(encode_partition_metadata(written)) == written


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=6))
def test_journal(payloads: list[bytes]) -> None:
    content = journal_content(payloads)
    assert whole_payloads(content) == (payloads, len(content))
