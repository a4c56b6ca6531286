"""The format of coordinators' records: a typed key and a versioned value.

A record's key is two bytes of type and a message without tags. Its value is two bytes of version
and a message, or null, which deletes the record of the key. Types are valid for one topic only:
type 0 of ``__share_group_state`` is a snapshot, type 0 of ``__consumer_offsets`` a committed
offset.
"""

from __future__ import annotations

from typing import Any

from sharegroup.wire.codec.decoder import DecodeError, decode
from sharegroup.wire.codec.encoder import encode

PREFIX_BYTES = 2
VERSION = b"\0\0"
"""The version of every value of a share group; new fields were added as tags."""

KEYS_MAX = 4096

RecordClasses = dict[int, tuple[type[Any], ...]]
"""The class of the key, and those of the value, for each type of a topic's records.

Nearly every value has one version, because new fields were added as tags. The modules that declare
the classes have these tables. Declaring a class takes half a millisecond, and a start needs few.
"""


def record_classes(*classes: tuple[type[Any], ...]) -> RecordClasses:
    """Return the classes of keys, each with those of its values, by the record type of the key."""
    return {key_class.__record_type__: (key_class, *values) for key_class, *values in classes}


def encode_key(key: Any) -> bytes:
    """Return the bytes of a record's key."""
    record_type: int = key.__record_type__
    return record_type.to_bytes(PREFIX_BYTES, "big") + encode(key)


def encode_value(value: Any) -> bytes:
    """Return the bytes of a record's value."""
    version: int = value.__version__
    return version.to_bytes(PREFIX_BYTES, "big") + encode(value)


def decode_record(
    classes: RecordClasses, key: bytes, value: bytes | None
) -> tuple[Any, Any | None] | None:
    """Return the messages of key and value; None for a type that is not in ``classes``.

    Raises DecodeError for invalid bytes and for an unknown version, because a record that cannot be
    read must not be skipped.
    """
    key_message = decode_key(classes, key)
    if key_message is None:
        return None
    if value is None:
        return key_message, None
    _, *value_classes = classes[_record_type(key)]
    version = int.from_bytes(value[:PREFIX_BYTES], "big", signed=True)
    matching_classes = (
        value_class for value_class in value_classes if value_class.__version__ == version
    )
    # An unknown version goes to the newest class, whose error names the version that it expects.
    return key_message, decode_value(next(matching_classes, value_classes[0]), value)


def decode_key(classes: RecordClasses, key: bytes) -> Any | None:
    """Return the message of a key; None for a type that is not in ``classes``."""
    record_type = _record_type(key)
    if len(key) < PREFIX_BYTES or record_type not in classes:
        return None
    key_class, *_ = classes[record_type]
    # With the class, because the same bytes are keys of different types in different topics.
    return _keys.get((key_class, key)) or _remember(key_class, bytes(key))


def decode_value(value_class: type[Any], value: bytes) -> Any:
    """Return the message of a value."""
    expected: int = value_class.__version__
    if value[:PREFIX_BYTES] != expected.to_bytes(PREFIX_BYTES, "big"):
        raise DecodeError(
            f"{value_class.__name__}: expected version {expected}, found "
            f"{bytes(value[:PREFIX_BYTES])!r}"
        )
    return _whole(value_class, value)


def _record_type(key: bytes) -> int:
    return int.from_bytes(key[:PREFIX_BYTES], "big", signed=True)


_keys: dict[tuple[type[Any], bytes], Any] = {}
"""Keys decoded recently; a log has millions of records with the same few keys."""


def _remember(key_class: type[Any], key: bytes) -> Any:
    # Cleared as a whole: keys that are still in use are back after one decoding each.
    if len(_keys) >= KEYS_MAX:
        _keys.clear()
    message = _keys[key_class, key] = _whole(key_class, key)
    return message


def _whole(message_class: type[Any], data: bytes) -> Any:
    message, end = decode(message_class, data, PREFIX_BYTES)
    if end != len(data):
        raise DecodeError(
            f"{message_class.__name__}: expected {end} bytes, found {len(data) - end} more"
        )
    return message
