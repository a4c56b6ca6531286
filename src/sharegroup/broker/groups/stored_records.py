"""The stored form of groups' records, declared once for both directions.

A record of ``__consumer_offsets`` is a class of core and two of Kafka's, its key and its value
(`wire.internal_topics`).  Most of their fields have the same names; a `StoredForm` has the others.
The codec of a type of groups encodes and decodes all its records by a table of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from sharegroup.broker.cluster.coordinator_log import KeyAndValue
from sharegroup.core.groups.share.assignor import Assignment
from sharegroup.core.groups.share.records import by_topic
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.wire.internal_topics.coordinator_records import (
    RecordClasses,
    decode_record,
    encode_key,
    encode_value,
)
from sharegroup.wire.internal_topics.group_records import TopicPartitions

Record = TypeVar("Record")
RecordType = TypeVar("RecordType", bound=IntEnum)
FieldOf = Callable[[Any], Any]
"""Returns what a field contains, from the record that is encoded or the value that is decoded."""

NAMES_IN_KEYS = {"regular_expression": "pattern"}
"""The fields of keys that core's records name differently."""


@dataclass(frozen=True, slots=True)
class StoredForm:
    """How core's class of a record is stored."""

    record_class: type[Any]
    to_value: Mapping[str, FieldOf] = field(default_factory=dict)
    """The fields of the stored value that no field of the record has under the same name."""
    to_record: Mapping[str, FieldOf] = field(default_factory=dict)
    """The fields of the record that no field of the stored value has under the same name."""


class _Conversion(NamedTuple):
    """The conversion of one type of records; fields with the functions that return them."""

    record_type: IntEnum
    record_class: type[Any]
    key_class: type[Any]
    value_class: type[Any]
    record_to_key: tuple[tuple[str, FieldOf], ...]
    record_to_value: tuple[tuple[str, FieldOf], ...]
    key_to_record: tuple[tuple[str, FieldOf], ...]
    value_to_record: tuple[tuple[str, FieldOf], ...]


class RecordCodec(Generic[Record]):
    """Encodes and decodes the records of one type of groups."""

    __slots__ = ("_by_class", "_by_type", "_classes", "_tombstone")

    def __init__(
        self, classes: RecordClasses, forms: Mapping[RecordType, StoredForm], tombstone: type[Any]
    ) -> None:
        """``tombstone`` is the class of records that delete the record of their key."""
        self._classes = classes
        self._tombstone = tombstone
        self._by_type = {
            int(record_type): _conversion(record_type, form, *classes[record_type])
            for record_type, form in forms.items()
        }
        self._by_class = {
            conversion.record_class: conversion for conversion in self._by_type.values()
        }

    def encode(self, record: Record) -> KeyAndValue:
        """Return the stored key and value of a record; the value of a tombstone is None."""
        if isinstance(record, self._tombstone):
            conversion = self._by_type[record.record_type]
        else:
            conversion = self._by_class[type(record)]
        key_fields = {name: of(record) for name, of in conversion.record_to_key}
        key = encode_key(conversion.key_class(**key_fields))
        if isinstance(record, self._tombstone):
            return key, None
        value_fields = {name: of(record) for name, of in conversion.record_to_value}
        return key, encode_value(conversion.value_class(**value_fields))

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        """Return the stored record, or None for a record type that this version does not know."""
        decoded = decode_record(self._classes, key, value)
        if decoded is None:
            return None
        stored_key, stored = decoded
        conversion = self._by_type[stored_key.__record_type__]
        record_fields = {name: of(stored_key) for name, of in conversion.key_to_record}
        record: Record
        if stored is None:
            record = self._tombstone(record_type=conversion.record_type, **record_fields)
        else:
            for name, of in conversion.value_to_record:
                record_fields[name] = of(stored)
            record = conversion.record_class(**record_fields)
        return record


def _conversion(
    record_type: IntEnum, form: StoredForm, key_class: type[Any], value_class: type[Any]
) -> _Conversion:
    key_names = _names(key_class)
    record_names = [NAMES_IN_KEYS.get(name, name) for name in key_names]
    others = [name for name in _names(form.record_class) if name not in record_names]
    return _Conversion(
        record_type,
        form.record_class,
        key_class,
        value_class,
        tuple(zip(key_names, map(attrgetter, record_names), strict=True)),
        _fields(_names(value_class), form.to_value),
        tuple(zip(record_names, map(attrgetter, key_names), strict=True)),
        _fields(others, form.to_record),
    )


def _names(message_class: type[Any]) -> list[str]:
    return [declared.name for declared in fields(message_class)]


def _fields(
    names: Iterable[str], different: Mapping[str, FieldOf]
) -> tuple[tuple[str, FieldOf], ...]:
    return tuple((name, different.get(name, attrgetter(name))) for name in names)


def stored_assignment(assignment: Assignment) -> tuple[TopicPartitions, ...]:
    """Return an assignment as records have it."""
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in by_topic(assignment).items()
    )


def loaded_assignment(topics: Iterable[TopicPartitions]) -> Assignment:
    """Return a stored assignment."""
    return frozenset(
        TopicIdPartition(TopicId(topic.topic_id), partition)
        for topic in topics
        for partition in topic.partitions
    )
