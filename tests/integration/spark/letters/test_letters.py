"""Dead letters of workers and brokers are rows, and rows go back to their groups once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException

from sharegroup.client import AdminClient, TopicPartition
from sharegroup.dead_letters.story import Attempt, RecordOrigin, Story
from sharegroup.spark import redrive
from tests.integration.spark.conftest import create_topic, produce, run_available
from tests.integration.worker.dead import (
    Given,
    NoAnswer,
    bury,
    failed,
    lying_in,
    make_topics,
    reject_all,
    set_group,
    until_there,
)
from tests.support.chosen_broker import LONG_WITH_A_JVM

STORY = Story(
    origin=RecordOrigin("orders", 3, 77, 1_700_000_000_000),
    failures=2,
    attempts=(
        Attempt(1, 1_700_000_001_000, "builtins.TimeoutError", "late \ud800", "member-0"),
        Attempt(2, 1_700_000_002_000, "tests.NoAnswer", "no answer", "member-1"),
    ),
)


def load(reader, bootstrap, topic, **options):
    return (
        reader.format("kafka-share-letters")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .options(**options)
        .load()
    )


def write_letters(bootstrap, dead, group, count, story=STORY):
    letters = [
        (
            Given("orders", offset=number, key=b"k", value=b"%d" % number, headers=[("own", b"h")]),
            failed(NoAnswer("no answer"), story),
        )
        for number in range(count)
    ]
    asyncio.run(bury(bootstrap, dead, group, *letters))


def test_letter_of_a_worker_has_its_whole_story_in_columns(spark, bootstrap):
    dead = create_topic(bootstrap, partitions=1)
    write_letters(bootstrap, dead, "billing", 1)
    (row,) = load(spark.read, bootstrap, dead).drop("timestamp", "traceback").collect()
    found = row.asDict(recursive=True)
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC).replace(tzinfo=None)
    assert found == {
        "key": b"k",
        "value": b"0",
        "topic": dead,
        "partition": 0,
        "offset": 0,
        "headers": [{"key": "own", "value": b"h"}],
        "reason": "attempts-exhausted",
        "errorClass": "tests.integration.worker.dead.NoAnswer",
        "message": "no answer",
        "attempts": [
            {
                "number": 1,
                "time": moment.replace(second=21),
                "errorClass": "builtins.TimeoutError",
                "message": "late \\ud800",
                "member": "member-0",
            },
            {
                "number": 2,
                "time": moment.replace(second=22),
                "errorClass": "tests.NoAnswer",
                "message": "no answer",
                "member": "member-1",
            },
        ],
        "failures": 2,
        "deliveryCount": 1,
        "origin": {"topic": "orders", "partition": 3, "offset": 77, "timestamp": moment},
        "firstFailure": moment.replace(second=21),
        "lastFailure": moment.replace(second=22),
        "group": "billing",
        "handler": "bill",
        "member": "member-1",
        "byBroker": False,
        "claimed": True,
        "redrives": 0,
        "redriven": False,
        "recordMissing": False,
    }


def test_letter_of_a_broker_is_completed_with_its_record(spark, bootstrap):
    topic = create_topic(bootstrap, partitions=1)
    dead = f"dlq.{topic}"
    asyncio.run(make_topics(bootstrap, dead, errors_deadletterqueue_group_enable="true"))
    settings = {
        "share_auto_offset_reset": "earliest",
        "errors_deadletterqueue_topic_name": dead,
    }
    asyncio.run(set_group(bootstrap, f"group-{topic}", **settings))
    produce(bootstrap, topic, b"one", partition=0)
    asyncio.run(reject_all(bootstrap, f"group-{topic}", topic, 1))
    asyncio.run(until_there(bootstrap, dead, 1))
    frame = load(spark.read, bootstrap, dead)
    columns = (
        "value",
        "reason",
        "group",
        "byBroker",
        "claimed",
        "recordMissing",
        "attempts",
        "firstFailure",
    )
    (row,) = frame.select(*columns, "origin.offset", "errorClass").collect()
    assert row.asDict() == {
        "value": b"one",
        "reason": "rejected",
        "group": f"group-{topic}",
        "byBroker": True,
        "claimed": False,
        "recordMissing": False,
        "attempts": [],
        "firstFailure": None,
        "offset": 0,
        "errorClass": None,
    }
    bare = load(spark.read, bootstrap, dead, completeRecords="false")
    assert [tuple(row) for row in bare.select("value", "recordMissing").collect()] == [(None, True)]


@LONG_WITH_A_JVM
def test_stream_of_letters_continues_where_its_checkpoint_ends(spark, bootstrap, tmp_path):
    dead = create_topic(bootstrap, partitions=1)
    found: list[list[int]] = []

    def work(batch, _):
        found.append(sorted(row["offset"] for row in batch.collect()))

    for count in (2, 3):
        write_letters(bootstrap, dead, "billing", count)
        run_available(load(spark.readStream, bootstrap, dead), tmp_path / "checkpoint", work)
    run_available(load(spark.readStream, bootstrap, dead), tmp_path / "checkpoint", work)
    assert [offsets for offsets in found if offsets] == [[0, 1], [2, 3, 4]]


def test_redrive_sends_rows_back_to_their_group_once(spark, bootstrap):
    dead = create_topic(bootstrap, partitions=1)
    group = f"group-{dead}"
    asyncio.run(make_topics(bootstrap, f"{group}.retry"))
    write_letters(bootstrap, dead, group, 4)
    chosen = load(spark.read, bootstrap, dead).where("cast(string(value) as int) % 2 = 1")
    done = redrive(chosen, confirm=[f"{group}.retry"])[dead]
    assert (dict(done.sent), dict(done.left), done.refused.letters) == (
        {f"{group}.retry": 2},
        {},
        0,
    )
    copies = asyncio.run(lying_in(bootstrap, f"{group}.retry"))
    assert [copy.value for copy in copies] == [b"1", b"3"]
    assert ("__sharegroup.redrives", b"1") in copies[0].headers
    frame = load(spark.read, bootstrap, dead)
    assert [row["offset"] for row in frame.where("redriven").orderBy("offset").collect()] == [1, 3]
    done = redrive(frame, confirm=[f"{group}.retry"])[dead]
    assert (dict(done.sent), dict(done.left)) == ({f"{group}.retry": 2}, {"redriven-before": 2})


@LONG_WITH_A_JVM
def test_redrive_leaves_letters_that_came_back_too_often_or_have_no_group(spark, bootstrap):
    dead = create_topic(bootstrap, partitions=1)
    group = f"group-{dead}"
    asyncio.run(make_topics(bootstrap, f"{group}.retry"))
    often = Story(origin=STORY.origin, redrives=3)
    write_letters(bootstrap, dead, group, 1, often)
    write_letters(bootstrap, dead, "nobody", 1)
    frame = load(spark.read, bootstrap, dead)
    done = redrive(frame, confirm=[f"{group}.retry"])[dead]
    assert (dict(done.sent), dict(done.left)) == ({}, {"redrives-exhausted": 1})
    (refused,) = done.refused
    assert "topic 'nobody.retry' does not exist" in refused.reason
    assert redrive(frame, max_redrives=4, confirm=[f"{group}.retry"])[dead].sent == {
        f"{group}.retry": 1
    }


def test_redrive_needs_the_place_of_its_letters(spark, bootstrap):
    dead = create_topic(bootstrap, partitions=1)
    frame = load(spark.read, bootstrap, dead)
    with pytest.raises(ValueError, match="have no column topic; expected topic, partition, offset"):
        redrive(frame.drop("topic"))
    with pytest.raises(ValueError, match="do not show which brokers they are from"):
        redrive(spark.sql("select 'x' topic, 0 partition, bigint(0) offset"))
    with pytest.raises(PySparkException, match="dead letters are read from plain offsets"):
        load(spark.read, bootstrap, dead, **{"share.group": "g"}).collect()


@LONG_WITH_A_JVM
def test_stream_of_letters_ends_if_letters_were_lost_and_goes_on_if_told(
    spark, bootstrap, tmp_path
):
    dead = create_topic(bootstrap, partitions=1)
    found: list[list[int]] = []

    def work(batch, _):
        found.append(sorted(row["offset"] for row in batch.collect()))

    def run(**options):
        frame = load(spark.readStream, bootstrap, dead, **options)
        run_available(frame, tmp_path / "checkpoint", work)

    async def purge(offset):
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_records({TopicPartition(dead, 0): offset})

    write_letters(bootstrap, dead, "billing", 2)
    run()
    write_letters(bootstrap, dead, "billing", 3)
    asyncio.run(purge(4))
    with pytest.raises(PySparkException, match="offsets 2 to 4 were deleted before they were read"):
        run()
    run(failOnDataLoss="false")
    assert [offsets for offsets in found if offsets] == [[0, 1], [4]]
