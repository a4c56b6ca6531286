"""Consumed records: how they are made of batches, and their keys and values.

Both consumers have these parts in common.  Records are decoded when the application takes them, and
their keys and values are bytes or deserialized.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

from sharegroup.client.records import Header
from sharegroup.client.settings.consumer_config import Deserializer
from sharegroup.wire.batches.batches import NO_TIMESTAMP
from sharegroup.wire.batches.records import DecodedRecord

Field = Literal["key", "value"]

SerializedSizes = tuple[int | None, int | None]
"""The sizes of key and value in bytes; None for one that is null."""

Shared = TypeVar("Shared")
Element = TypeVar("Element")


class RecordContent(Generic[Shared]):
    """The part of a consumed record that does not depend on how it was consumed."""

    __slots__ = ("_shared", "_sizes", "headers", "key", "offset", "timestamp_ms", "value")

    _shared: Shared
    """The facts that the record has in common with its neighbours."""
    _sizes: SerializedSizes
    """Set only when a deserializer has replaced the bytes, so plain records need no time for it."""

    def __init__(
        self,
        shared: Shared,
        offset: int,
        timestamp_ms: int,
        key: Any,
        value: Any,
        headers: Sequence[Header],
    ) -> None:
        # Positional arguments and no checks: this runs for every record of some reads.
        self._shared = shared
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        """Milliseconds since 1970; -1 if the producer set none, as in Java's client."""
        self.key = key
        self.value = value
        self.headers = headers

    @property
    def serialized_key_size(self) -> int | None:
        """The size of the key in bytes, before its deserialization; None without a key."""
        return self._size(0, self.key)

    @property
    def serialized_value_size(self) -> int | None:
        """The size of the value in bytes, before its deserialization; None without a value."""
        return self._size(1, self.value)

    def _size(self, index: int, content: Any) -> int | None:
        sizes: SerializedSizes | None = getattr(self, "_sizes", None)
        return _size_of(content) if sizes is None else sizes[index]


Content = TypeVar("Content", bound=RecordContent[Any])
Other = TypeVar("Other", bound=RecordContent[Any])


def maker(
    kind: type[Content], shared: object
) -> Callable[[Iterable[DecodedRecord]], list[Content]]:
    """Return a function that makes the records of a batch, all of them with these shared facts.

    This is the hot loop of reading.  ``__init__`` is not called, because the call takes as long as
    its work.  Empty lists of headers are dropped, because the garbage collector then has fewer
    objects to look at.
    """
    new = kind.__new__

    def make(raw: Iterable[DecodedRecord]) -> list[Content]:
        records: list[Content] = []
        append = records.append
        for raw_record in raw:
            record = new(kind)
            record._shared = shared
            record.offset = raw_record.offset
            timestamp = raw_record.timestamp
            record.timestamp_ms = NO_TIMESTAMP if timestamp is None else timestamp
            record.key = raw_record.key
            record.value = raw_record.value
            record.headers = raw_record.headers or ()
            append(record)
        return records

    return make


def copy_as(kind: type[Other], record: RecordContent[Any]) -> Other:
    """Return the record as one of another class."""
    return kind(
        record._shared, record.offset, record.timestamp_ms, record.key, record.value, record.headers
    )


class Deserializers(Protocol):
    """The deserializers in the config of a consumer; None: the bytes stay."""

    @property
    def key_deserializer(self) -> Deserializer | None: ...
    @property
    def value_deserializer(self) -> Deserializer | None: ...


def deserialize(
    record: Content,
    config: Deserializers,
    failure: Callable[[Content, Field, Exception], Exception],
) -> None:
    """Replace the bytes of key and value; raise what ``failure`` returns for one that fails.

    Then both are still bytes.  A deserializer is code of the application and may raise anything.
    """
    key, value = record.key, record.value
    sizes = _size_of(key), _size_of(value)
    field: Field = "key"
    try:
        if config.key_deserializer is not None and key is not None:
            key = config.key_deserializer(key)
        field = "value"
        if config.value_deserializer is not None and value is not None:
            value = config.value_deserializer(value)
    except Exception as error:
        raise failure(record, field, error) from error
    record.key, record.value, record._sizes = key, value, sizes


def _size_of(content: bytes | None) -> int | None:
    return None if content is None else len(content)


class LazyDeque(deque[Element]):
    """A deque whose truth value is whether an element is left; finding out may fetch one.

    Look at the truth value before each access. The length counts only elements fetched so far.
    """

    __slots__ = ("_source",)

    def __init__(self, source: Iterable[Element]) -> None:
        super().__init__()
        self._source = iter(source)

    def __bool__(self) -> bool:
        if not len(self):
            for element in self._source:
                self.append(element)
                break
        return len(self) > 0

    def drain(self) -> Iterator[Element]:
        """Remove and yield all elements."""
        while self:
            yield self.popleft()
