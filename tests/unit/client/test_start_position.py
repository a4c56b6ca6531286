"""In which topics a share group has no start offset: an error does not mean that."""

from __future__ import annotations

import pytest

from sharegroup.client.admin.start_position import topics_without_offsets
from sharegroup.client.admin.types import SharePartitionOffset
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
BEGUN, NEW = SharePartitionOffset(5, 0, 2), SharePartitionOffset(None, None, None)


def test_topics_without_a_start_offset_are_new() -> None:
    assert topics_without_offsets({A0: NEW, A1: BEGUN, B0: NEW}, ["a", "b", "c"]) == ["b", "c"]
    assert topics_without_offsets({}, ["a"]) == ["a"]
    assert topics_without_offsets(GroupIdNotFound("new"), ["a"]) == ["a"]


@pytest.mark.parametrize(
    "error", [CoordinatorNotAvailable, TopicAuthorizationFailed, UnknownServerError]
)
def test_a_topic_whose_offsets_are_not_known_is_not_new(error: type[KafkaError]) -> None:
    with pytest.raises(error, match="why"):
        topics_without_offsets({A0: error("why"), A1: NEW}, ["a"])
    with pytest.raises(error, match="why"):
        topics_without_offsets(error("why"), ["a"])


def test_the_error_of_a_partition_matters_only_if_it_may_hide_the_only_offset() -> None:
    error = CoordinatorNotAvailable("why")
    assert topics_without_offsets({A0: error, A1: BEGUN, B0: NEW}, ["a", "b"]) == ["b"]
    assert topics_without_offsets({A0: error, B0: NEW}, ["b"]) == ["b"]


def test_a_topic_that_does_not_exist_is_new() -> None:
    assert topics_without_offsets({A0: UnknownTopicOrPartition("gone")}, ["a"]) == ["a"]
