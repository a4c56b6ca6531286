"""Offsets of a stream of plain offsets: what Spark logs is parsed back, or refused."""

from __future__ import annotations

import uuid

import pytest

from sharegroup.ids import TopicId, topic_id_text
from sharegroup.spark.log_stream import LogStreamReader, parsed_ends
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
