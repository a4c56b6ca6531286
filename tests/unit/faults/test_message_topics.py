"""Requests of every API name their topics in one of a few ways."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from sharegroup.faults.script import names_topic
from sharegroup.wire.codec.apis import APIS, newest_request_class
from sharegroup.wire.codec.convert import empty

KEYS = {api.name: api.key for api in APIS.values()}

WITH_PARTITIONS = [
    (
        *("ListOffsets", "topics", "ListOffsetsTopic", "name"),
        *("partitions", "ListOffsetsPartition", "partition_index"),
    ),
    (
        *("DeleteRecords", "topics", "DeleteRecordsTopic", "name"),
        *("partitions", "DeleteRecordsPartition", "partition_index"),
    ),
]


def part(request: Any, name: str) -> type[Any]:
    """The class of a part of a request."""
    found: type[Any] = getattr(import_module(type(request).__module__), name)
    return found


@pytest.mark.parametrize(
    ("api", "topics", "topic_class", "name", "partitions", "partition_class", "index"),
    WITH_PARTITIONS,
)
def test_topic_with_partitions_is_named_with_and_without_a_partition(
    api: str,
    topics: str,
    topic_class: str,
    name: str,
    partitions: str,
    partition_class: str,
    index: str,
) -> None:
    request = empty(newest_request_class(KEYS[api]))
    partition = replace(empty(part(request, partition_class)), **{index: 3})
    topic = replace(empty(part(request, topic_class)), **{name: "orders", partitions: (partition,)})
    request = replace(request, **{topics: (topic,)})
    assert names_topic(request, "orders", None)
    assert names_topic(request, "orders", 3)
    assert not names_topic(request, "orders", 2)
    assert not names_topic(request, "order", None)


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("ShareGroupHeartbeat", {"subscribed_topic_names": ("other", "orders")}),
        ("ConsumerGroupHeartbeat", {"subscribed_topic_names": ("orders",)}),
    ],
)
def test_topic_in_a_list_of_names_is_named_without_a_partition(
    api: str, fields: dict[str, Any]
) -> None:
    request = replace(empty(newest_request_class(KEYS[api])), **fields)
    assert names_topic(request, "orders", None)
    assert not names_topic(request, "orders", 0)
    assert not names_topic(request, "missing", None)


@pytest.mark.parametrize("api_key", sorted(APIS))
def test_request_without_topics_names_none(api_key: int) -> None:
    assert not names_topic(empty(newest_request_class(api_key)), "orders", None)
