"""Finds out whether a request names a topic or a partition, for all APIs alike.

Kafka's messages name topics in a few ways: a structure with ``name``, ``topic`` or
``topic_name`` that may have partitions, or a list of names.  Requests that name topics only by
their id are recognized by their handlers (`faulty_partitions`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

TOPIC_FIELDS = ("name", "topic", "topic_name", "resource_name")
NAME_LISTS = ("topic_names", "subscribed_topic_names", "topics")
PARTITION_LISTS = ("partitions", "partition_data", "partition_indexes")
PARTITION_FIELDS = ("index", "partition", "partition_index")


def names_topic(message: Any, topic: str, partition: int | None) -> bool:
    """Return whether a message names the topic, and the partition unless it is None."""
    if not dataclasses.is_dataclass(message):
        return False
    if any(getattr(message, field, None) == topic for field in TOPIC_FIELDS):
        return partition is None or _names_partition(message, partition)
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if not isinstance(value, tuple):
            continue
        if partition is None and field.name in NAME_LISTS and topic in value:
            return True
        if any(names_topic(element, topic, partition) for element in value):
            return True
    return False


def _names_partition(message: Any, partition: int) -> bool:
    lists = [getattr(message, field, None) for field in PARTITION_LISTS]
    for numbers in lists:
        for element in numbers or ():
            number = element
            if dataclasses.is_dataclass(element):
                fields = (getattr(element, field, None) for field in PARTITION_FIELDS)
                number = next((value for value in fields if value is not None), None)
            if number == partition:
                return True
    return False
