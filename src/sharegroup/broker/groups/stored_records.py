"""The stored form of coordinators' records, declared once for both directions.

A record of ``__consumer_offsets`` or ``__transaction_state`` is a class of core and two of Kafka's,
its key and its value (`wire.internal_topics`).  Most of their fields have the same names; a
`StoredForm` has the others.  A codec encodes and decodes all records by a table of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
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
RecordType = TypeVar("RecordType", bound=int)
Target = TypeVar("Target")

FieldOf = Callable[[Any], Any]
"""Returns what a field contains, from the record that is encoded or the value that is decoded."""

Different = Mapping[str, str | FieldOf]
"""The fields that the source does not have under the same name, with their names there (also with
dots) or functions."""

Getters = tuple[tuple[str, FieldOf], ...]
"""The fields of a class, with the functions that return them from an object of another class."""

NAMES_IN_KEYS = {"group": "group_id", "regular_expression": "pattern"}
"""The fields of keys that core's records name differently."""


@dataclass(frozen=True, slots=True)
class StoredForm:
    """How core's class of a record is stored."""

    record_class: type[Any]
    to_value: Different = field(default_factory=dict)
    """The fields of the stored value that no field of the record has under the same name."""
    to_record: Different = field(default_factory=dict)
    """The fields of the record that no field of the stored value has under the same name."""
    tombstone: type[Any] | None = None
    """The class of tombstones of this type; None for the class that all types have."""


class _Conversion(NamedTuple):
    """The conversion of one type of records."""

    record_type: int
    record_class: type[Any]
    tombstone: type[Any] | None
    key_class: type[Any]
    record_to_key: Getters
    key_to_record: Getters
    record_to_value: dict[type[Any], Getters]
    """By the class of the value, the usual one first."""
    value_to_record: dict[type[Any], Getters]


class RecordCodec(Generic[Record]):
    """Encodes and decodes the records of one type of groups, or of transactional ids."""

    __slots__ = ("_by_class", "_by_type", "_classes", "_tombstone")

    def __init__(
        self,
        classes: RecordClasses,
        forms: Mapping[RecordType, StoredForm],
        tombstone: type[Any] | None = None,
    ) -> None:
        """``tombstone`` is the class of records that delete the record of their key.

        It has a ``record_type``, unlike a class of one form.
        """
        self._classes = classes
        self._tombstone = tombstone
        self._by_type: dict[int, _Conversion] = {}
        self._by_class: dict[type[Any] | None, _Conversion] = {}
        for record_type, form in forms.items():
            conversion = _conversion(record_type, form, *classes[record_type])
            self._by_type[record_type] = self._by_class[form.record_class] = conversion
            self._by_class[form.tombstone] = conversion

    def encode(self, record: Record, value_class: type[Any] | None = None) -> KeyAndValue:
        """Return the stored key and value of a record; the value of a tombstone is None.

        ``value_class`` is the version of the value; None for the usual one.
        """
        if self._tombstone is not None and isinstance(record, self._tombstone):
            conversion = self._by_type[record.record_type]
        else:
            conversion = self._by_class[type(record)]
        key = encode_key(_made(conversion.key_class, conversion.record_to_key, record))
        if type(record) is not conversion.record_class:
            return key, None
        value_class = value_class or next(iter(conversion.record_to_value))
        value = _made(value_class, conversion.record_to_value[value_class], record)
        return key, encode_value(value)

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        """Return the stored record, or None for a record type that this version does not know."""
        decoded = decode_record(self._classes, key, value)
        if decoded is None:
            return None
        stored_key, stored = decoded
        conversion = self._by_type[stored_key.__record_type__]
        record_fields = {name: of(stored_key) for name, of in conversion.key_to_record}
        record: Record
        if stored is not None:
            for name, of in conversion.value_to_record[type(stored)]:
                record_fields[name] = of(stored)
            record = conversion.record_class(**record_fields)
        elif conversion.tombstone is not None:
            record = conversion.tombstone(**record_fields)
        else:
            assert self._tombstone is not None, "the form has no tombstone of its own"
            record = self._tombstone(record_type=conversion.record_type, **record_fields)
        return record


def conversion(
    target: type[Target], source: type[Any], different: Different
) -> Callable[[Any], Target]:
    """Return a function that makes a ``target`` from a ``source``, field by field."""
    getters = _getters(_names(target), source, different)
    return lambda value: _made(target, getters, value)


def _conversion(
    record_type: int, form: StoredForm, key_class: type[Any], *value_classes: type[Any]
) -> _Conversion:
    record_class, key_names = form.record_class, _names(key_class)
    record_names = [NAMES_IN_KEYS.get(name, name) for name in key_names]
    others = [name for name in _names(record_class) if name not in record_names]
    return _Conversion(
        record_type,
        record_class,
        form.tombstone,
        key_class,
        tuple(zip(key_names, map(attrgetter, record_names), strict=True)),
        tuple(zip(record_names, map(attrgetter, key_names), strict=True)),
        {
            value_class: _getters(_names(value_class), record_class, form.to_value)
            for value_class in value_classes
        },
        {
            value_class: _getters(others, value_class, form.to_record)
            for value_class in value_classes
        },
    )


def _names(message_class: type[Any]) -> list[str]:
    return [declared.name for declared in fields(message_class)]


def _getters(names: Iterable[str], source: type[Any], different: Different) -> Getters:
    """Return the fields with these names; one that the source lacks is left to its default."""
    source_names = _names(source)
    getters: list[tuple[str, FieldOf]] = []
    for name in names:
        origin = different.get(name, name)
        if not isinstance(origin, str):
            getters.append((name, origin))
        elif origin.partition(".")[0] in source_names:
            getters.append((name, attrgetter(origin)))
    return tuple(getters)


def _made(target: type[Target], getters: Getters, source: object) -> Target:
    return target(**{name: of(source) for name, of in getters})


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
