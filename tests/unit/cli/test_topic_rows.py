"""The rows of `sharegroup topics describe`, also if topics go meanwhile."""

from __future__ import annotations

from uuid import UUID

from sharegroup.cli.topics.topics import partition_listing
from sharegroup.client.admin.types import PartitionDescription, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset
from sharegroup.client.records import TopicPartition
from sharegroup.errors import NotLeaderOrFollower, UnknownTopicOrPartition

GONE = UnknownTopicOrPartition("gone")
REFUSED = NotLeaderOrFollower("no leader")
KEPT_0, GONE_0 = TopicPartition("kept", 0), TopicPartition("gone", 0)


def topic(name: str) -> TopicDescription:
    partition = PartitionDescription(0, 1, 0, (1,), (1,), ())
    return TopicDescription(name, UUID(int=1), False, (partition,))


def at(offset: int) -> ListedOffset:
    return ListedOffset(offset, -1, 0)


def test_topic_that_is_deleted_meanwhile_is_none_of_all_topics() -> None:
    """Before its description, or between that and the look-up of its offsets."""
    described = {"kept": topic("kept"), "gone": topic("gone"), "sooner": GONE}
    first, end = {KEPT_0: at(0), GONE_0: GONE}, {KEPT_0: at(5), GONE_0: GONE}
    listing = partition_listing(described, first, end, are_named=False)
    assert [row["topic"] for row in listing.rows] == ["kept"]
    assert listing.failures == []


def test_missing_topic_that_the_command_line_names_is_a_failure() -> None:
    described = {"gone": topic("gone"), "sooner": GONE}
    listing = partition_listing(described, {GONE_0: GONE}, {GONE_0: GONE}, are_named=True)
    assert [row["start_offset"] for row in listing.rows] == [None]
    assert listing.failures == [GONE, GONE], "one for each topic"


def test_end_offset_that_is_refused_is_a_failure() -> None:
    """The leader may move between the two requests."""
    listing = partition_listing(
        {"kept": topic("kept")}, {KEPT_0: at(0)}, {KEPT_0: REFUSED}, are_named=False
    )
    assert [(row["start_offset"], row["end_offset"]) for row in listing.rows] == [(0, None)]
    assert listing.failures == [REFUSED]
