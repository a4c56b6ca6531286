"""Offsets of a stream of plain offsets: what Spark logs is parsed back, or refused."""

from __future__ import annotations

import uuid

import pytest

from sharegroup.client.records import TopicPartition
from sharegroup.errors import OffsetOutOfRange
from sharegroup.ids import TopicId, topic_id_text
from sharegroup.spark.log_stream import LogStreamReader, next_ends, parsed_ends
from sharegroup.spark.offsets import CheckpointError
from sharegroup.spark.options import LettersOptions

ID = TopicId(uuid.UUID(int=7))
OTHER_ID = TopicId(uuid.UUID(int=8))


def offset(topic_id, **ends):
    numbers = {name.removeprefix("p"): end for name, end in ends.items()}
    return {"v": 1, "topics": {"orders.dead": {"id": topic_id_text(topic_id), "ends": numbers}}}


def planned(start, end):
    options = LettersOptions(topics=("orders.dead",), client={}, partitions_min=1)
    tasks = LogStreamReader(options, lambda *_: iter(())).partitions(start, end)
    return [
        (part.topic_id, part.partition, run.first_offset, run.end_offset)
        for task in tasks
        for part in task.parts
        for run in part.runs
    ]


def test_ends_are_parsed_by_topic_id_and_partition():
    assert parsed_ends(offset(ID, p0=12, p1=7)) == {
        ("orders.dead", ID, 0): 12,
        ("orders.dead", ID, 1): 7,
    }


def test_batch_reads_from_the_last_ends_and_new_partitions_from_their_beginning():
    assert planned(offset(ID, p0=10, p1=7), offset(ID, p0=12, p1=7, p2=3)) == [
        (ID, 0, 10, 12),
        (ID, 2, 0, 3),
    ]


def test_topic_that_was_made_again_is_read_from_its_beginning():
    assert planned(offset(ID, p0=10), offset(OTHER_ID, p0=4)) == [(OTHER_ID, 0, 0, 4)]


def ends_after(begins, *, earliest=0, latest, topic_id=ID, fail=True):
    """Return the ends by partition; ``latest`` has the partitions that are read now."""
    options = LettersOptions(topics=("orders.dead",), client={}, fail_on_data_loss=fail)
    ends = next_ends(
        options,
        {("orders.dead", ID, partition): end for partition, end in begins.items()},
        {"orders.dead": topic_id},
        {TopicPartition("orders.dead", partition): earliest for partition in latest},
        {TopicPartition("orders.dead", partition): end for partition, end in latest.items()},
    )
    return {where.partition: end for where, end in ends.items()}


def test_partition_that_assign_leaves_out_for_a_while_goes_on_at_its_last_end():
    without = ends_after({0: 10, 1: 7}, latest={0: 12})
    assert without == {0: 12, 1: 7}
    assert ends_after(without, latest={0: 12}) == without, "an equal offset starts no batch"
    again = ends_after(without, latest={0: 14, 1: 9})
    assert again == {0: 14, 1: 9}
    assert planned(offset(ID, p0=12, p1=7), offset(ID, p0=14, p1=9)) == [
        (ID, 0, 12, 14),
        (ID, 1, 7, 9),
    ]


def test_partition_that_a_broker_does_not_know_yet_keeps_its_end():
    """Metadata of a broker that lags behind may have fewer partitions for a moment."""
    assert ends_after({0: 10, 1: 7, 2: 5}, latest={0: 10}) == {0: 10, 1: 7, 2: 5}


def test_records_deleted_while_assign_left_their_partition_out_are_lost_data():
    without = ends_after({0: 10, 1: 7}, latest={0: 12})
    with pytest.raises(OffsetOutOfRange, match="partition 1: offsets 7 to 8 were deleted"):
        ends_after(without, earliest=8, latest={0: 12, 1: 9})


def test_ends_of_a_deleted_topic_are_not_those_of_the_new_one():
    with pytest.raises(OffsetOutOfRange, match="deleted and created again"):
        ends_after({0: 10, 1: 7}, latest={0: 2}, topic_id=OTHER_ID)
    assert ends_after({0: 10, 1: 7}, latest={0: 2}, topic_id=OTHER_ID, fail=False) == {0: 2}


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"v": 2, "topics": {}},
        {"v": 1, "topics": {"orders": {"id": "?", "ends": {"0": 1}}}},
        {"v": 1, "topics": {"orders": {"id": topic_id_text(ID), "ends": {"x": 1}}}},
        {"v": 1, "topics": []},
    ],
)
def test_offset_of_another_source_is_refused(said):
    with pytest.raises(CheckpointError, match="use a new checkpointLocation"):
        parsed_ends(said)


@pytest.mark.parametrize("end", [-1, 2**63, 1.5, float("inf"), True, "12", None])
def test_end_that_is_no_offset_is_refused(end):
    with pytest.raises(CheckpointError, match="use a new checkpointLocation"):
        parsed_ends(offset(ID, p0=end))


def test_partition_that_is_none_is_refused():
    with pytest.raises(CheckpointError, match="use a new checkpointLocation"):
        parsed_ends({"v": 1, "topics": {"t": {"id": topic_id_text(ID), "ends": {"-1": 5}}}})
