"""Compares Protobuf schemas by the rules that Confluent's registry documents.

Messages are found by their names, fields by their numbers.  Incompatible changes are:

- another package, and a message that is missing;
- a field whose type changes to one with another encoding, or to another message or enumeration;
- a required field that is added or removed;
- a repeated field of numbers that becomes a single one, or the reverse;
- a field that is removed from a ``oneof``;
- several fields that move into one ``oneof``, or one field that moves into a ``oneof`` that has
  fields from before.

All other changes are compatible: other names, new and removed fields, messages and enumerations,
values of enumerations, options and services.  Types of one group have compatible encodings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

GROUPS = (
    ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
    ("SINT32", "SINT64"),
    ("STRING", "BYTES"),
    ("FIXED32", "SFIXED32"),
    ("FIXED64", "SFIXED64"),
)
"""Types that are readable as each other; any other type only as itself."""
GROUP_OF_TYPE = {name: group[0] for group in GROUPS for name in group}


def unreadable_messages(
    old: Any, old_files: Mapping[str, Any], new: Any, new_files: Mapping[str, Any]
) -> list[str]:
    """Return the incompatible changes between two file descriptors.

    ``old_files`` and ``new_files`` are the descriptors of the files that they import.
    """
    if old.package != new.package:
        return [f"the package changed from {old.package or 'none'} to {new.package or 'none'}"]
    comparison = _MessageComparison(
        _types([old, *old_files.values()]), _types([new, *new_files.values()])
    )
    return list(comparison.compare_messages(old, new))


class _MessageComparison:
    """One comparison; each pair of messages is looked at once."""

    __slots__ = ("_new", "_old", "_seen")

    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        self._old = old
        self._new = new
        self._seen: set[str] = set()

    def compare_messages(self, old: Any, new: Any) -> Iterator[str]:
        """Yield the incompatible changes of all messages that the old file defines."""
        defined = _types([new])
        for name, message in _types([old]).items():
            if message.options.map_entry:
                continue  # Compared with the field that it belongs to.
            if name not in defined:
                yield f"message {name[1:]}: it was removed"
            else:
                yield from self._compare_message(name)

    def _compare_message(self, name: str) -> Iterator[str]:
        if name in self._seen:
            return
        self._seen.add(name)
        old, new = self._old[name], self._new[name]
        before = {field.number: field for field in old.field}
        after = {field.number: field for field in new.field}
        for number in sorted({*before, *after}):
            place = f"message {name[1:]}, field {number}"
            written, read = before.get(number), after.get(number)
            if written is None or read is None:
                yield from _compare_presence(written, read, old, place)
            else:
                yield from self._compare_field(written, read, place)
        yield from _compare_oneofs(old, new, f"message {name[1:]}")

    def _compare_field(self, old: Any, new: Any, place: str) -> Iterator[str]:
        was, now = _type_name(old), _type_name(new)
        if GROUP_OF_TYPE.get(was, was) != GROUP_OF_TYPE.get(now, now):
            yield f"{place}: the type changed from {was.lower()} to {now.lower()}"
            return
        if _is_repeated(old) != _is_repeated(new) and was not in ("STRING", "BYTES", "MESSAGE"):
            yield f"{place}: a number changed between repeated and single"
        if _is_required(old) != _is_required(new):
            yield f"{place}: required was {'removed' if _is_required(old) else 'added'}"
        if was not in ("MESSAGE", "GROUP"):
            return
        old_map, new_map = self._map_entry(self._old, old), self._map_entry(self._new, new)
        if old_map is not None and new_map is not None:
            for part, (written, read) in enumerate(zip(old_map.field, new_map.field, strict=True)):
                side = "value" if part else "key"
                yield from self._compare_field(written, read, f"{place}, {side} of the map")
        elif old.type_name != new.type_name or old_map is not None or new_map is not None:
            yield f"{place}: the type changed from {old.type_name[1:]} to {new.type_name[1:]}"
        else:
            yield from self._compare_message(old.type_name)

    @staticmethod
    def _map_entry(types: Mapping[str, Any], field: Any) -> Any:
        """Return the message of a map's entries; None if the field is no map."""
        message = types[field.type_name]
        return message if message.options.map_entry else None


def _compare_presence(old: Any, new: Any, old_message: Any, place: str) -> Iterator[str]:
    if new is not None:
        if _is_required(new):
            yield f"{place}: a required field was added"
    elif _is_required(old):
        yield f"{place}: a required field was removed"
    elif _oneof(old_message, old):
        yield f"{place}: the field was removed from the oneof {_oneof(old_message, old)}"


def _compare_oneofs(old: Any, new: Any, place: str) -> Iterator[str]:
    before = {field.number: _oneof(old, field) for field in old.field}
    members: dict[str, list[int]] = {}
    for field in new.field:
        name = _oneof(new, field)
        if name and field.number in before:
            members.setdefault(name, []).append(field.number)
    for name, numbers in members.items():
        moved = [number for number in numbers if not before[number]]
        if len(moved) > 1:
            yield f"{place}: several fields moved into the oneof {name}: {moved}"
        elif moved and len(numbers) > 1:
            yield f"{place}: field {moved[0]} moved into the oneof {name}, which existed before"


def _oneof(message: Any, field: Any) -> str:
    """Return the name of the ``oneof`` of a field; "" if it is in none."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return str(message.oneof_decl[field.oneof_index].name)


def _is_required(field: Any) -> bool:
    return bool(field.label == field.LABEL_REQUIRED)


def _is_repeated(field: Any) -> bool:
    return bool(field.label == field.LABEL_REPEATED)


def _type_name(field: Any) -> str:
    """Return a type without its prefix, such as ``INT32``."""
    return str(field.Type.Name(field.type)).removeprefix("TYPE_")


def _types(files: list[Any]) -> dict[str, Any]:
    """Return the messages of files by their full names, which begin with a dot."""
    found: dict[str, Any] = {}

    def add(prefix: str, messages: Any) -> None:
        for message in messages:
            name = f"{prefix}.{message.name}"
            found[name] = message
            add(name, message.nested_type)

    for file in files:
        add(f".{file.package}" if file.package else "", file.message_type)
    return found
