"""The key and value of a consumed record, as bytes or deserialized."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from sharegroup.client.records import Header
from sharegroup.client.settings.consumer_config import Deserializer

Field = Literal["key", "value"]

SerializedSizes = tuple[int | None, int | None]
"""The sizes of key and value in bytes; None for one that is null."""


class RecordContent:
    """The part of a consumed record that does not depend on how it was consumed."""

    __slots__ = ("_sizes", "headers", "key", "offset", "timestamp_ms", "value")

    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 if the producer set none, as in Java's client."""
    key: Any
    value: Any
    headers: Sequence[Header]
    _sizes: SerializedSizes
    """Set only when a deserializer has replaced the bytes, so plain records need no time for it."""

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


Content = TypeVar("Content", bound=RecordContent)


def deserialize(
    record: Content,
    *,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
    failure: Callable[[Content, Field, Exception], Exception],
) -> None:
    """Replace the bytes of key and value; raise what ``failure`` returns for one that fails.

    Then both are still bytes.  A deserializer is code of the application and may raise anything.
    """
    key, value = record.key, record.value
    sizes = _size_of(key), _size_of(value)
    field: Field = "key"
    try:
        if key_deserializer is not None and key is not None:
            key = key_deserializer(key)
        field = "value"
        if value_deserializer is not None and value is not None:
            value = value_deserializer(value)
    except Exception as error:
        raise failure(record, field, error) from error
    record.key, record.value, record._sizes = key, value, sizes


def _size_of(content: bytes | None) -> int | None:
    return None if content is None else len(content)
