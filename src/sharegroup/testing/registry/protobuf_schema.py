"""Protobuf schemas: a ``.proto`` file, or its descriptor in base64.

Python's serializer sends descriptors, those of other languages send files.  Both become a file
descriptor, so a file that is registered in both forms gets one id.

Python's protobuf library has no parser for ``.proto`` files.  Google's compiler in the package
grpcio-tools parses them, in a process of its own.  Descriptors need the protobuf library alone.

Schemas are compared by the rules that Confluent's registry documents.  Messages are found by their
names, fields by their numbers.  Incompatible changes are:

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

import base64
import binascii
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from sharegroup.testing.registry.errors import InvalidSchema, library_missing
from sharegroup.testing.registry.schema_texts import ParsedSchema, Resolved

COMPILE_SECONDS_MAX = 30.0
MAIN_FILE = "schema.proto"
"""The name of a ``.proto`` file for the compiler; the descriptor is stored without a name."""
BUILT_IN = re.compile(r"(google/(?:protobuf|type)/[a-z0-9_]+)\.proto")
"""Files that every Protobuf library has, so that schemas import them without a reference."""
CONFLUENT = re.compile(r"confluent/[a-z0-9_/]+\.proto")
"""Files that Confluent's serializers bring along; they are known if their client is imported."""
IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;')
"""An import of a file; also one in a comment, which does no harm."""


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A valid Protobuf schema."""

    text: str
    identity: str
    descriptor: Any
    """The ``FileDescriptorProto`` of the schema."""
    files: dict[str, Any]
    """The descriptors of all files that it imports, also indirectly, by their paths."""

    def normalized(self) -> ProtobufSchema:
        """Return the schema as a descriptor, which has no comments and no layout."""
        return ProtobufSchema(self.identity, self.identity, self.descriptor, self.files)

    def formatted(self, form: str) -> str:
        """Return the text, or the descriptor in base64 for the form "serialized"."""
        return self.identity if form == "serialized" else self.text

    def unreadable(self, written: ParsedSchema) -> list[str]:
        """Return the reasons why messages of the other schema are not readable with this one."""
        assert isinstance(written, ProtobufSchema)
        return unreadable_messages(written.descriptor, written.files, self.descriptor, self.files)


def parse_protobuf(text: str, references: Sequence[Resolved]) -> ProtobufSchema:
    """Parse a ``.proto`` file or a descriptor; references have the paths of their imports."""
    try:
        # Imported here, because this library is optional.
        from google.protobuf import descriptor_pb2, descriptor_pool
    except ImportError as error:
        raise library_missing("Protobuf", error) from error
    known = dict(_referenced_files(references))
    encoded = _from_base64(text)
    if encoded is None:
        paths = [path for path in IMPORT.findall(text) if path in known or _built_in(path)]
        encoded = _compiled(text, _imported_files(paths, known))
    descriptor = descriptor_pb2.FileDescriptorProto()
    try:
        descriptor.ParseFromString(encoded)
    except Exception as error:  # Its class depends on the implementation in use.
        raise InvalidSchema(
            f"expected a .proto file, or a file descriptor in base64: {error}"
        ) from error
    files = _imported_files(descriptor.dependency, known)
    descriptor.name = MAIN_FILE
    # A pool of its own: the default one refuses a second file that defines the same names.
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in [*files.values(), descriptor]:
            pool.AddSerializedFile(file.SerializeToString())
        pool.FindFileByName(MAIN_FILE)
    except (TypeError, KeyError) as error:
        raise InvalidSchema(f"expected a valid Protobuf file: {error}") from error
    plain = _without_layout(descriptor)
    identity = base64.b64encode(plain.SerializeToString(deterministic=True)).decode()
    is_text = _from_base64(text) is None
    return ProtobufSchema(text.strip() if is_text else identity, identity, plain, files)


def _from_base64(text: str) -> bytes | None:
    """Return the bytes of a text in base64; None if it is a ``.proto`` file."""
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None


def _without_layout(descriptor: Any) -> Any:
    """Return a descriptor without what differs between compilers and copies of one file."""
    plain = type(descriptor)()
    plain.CopyFrom(descriptor)
    plain.ClearField("source_code_info")
    plain.ClearField("name")
    for message in _messages(plain.message_type):
        for field in message.field:
            if field.json_name == _json_name(field.name):
                field.ClearField("json_name")
    return plain


def _messages(messages: Any) -> Iterator[Any]:
    for message in messages:
        yield message
        yield from _messages(message.nested_type)


def _json_name(name: str) -> str:
    """Return the name of a field in JSON, unless the schema sets another one."""
    return re.sub(r"_+([a-zA-Z0-9]|$)", lambda match: match.group(1).upper(), name)


def _referenced_files(references: Sequence[Resolved]) -> Iterator[tuple[str, Any]]:
    for reference in references:
        schema = reference.schema
        assert isinstance(schema, ProtobufSchema)
        yield from schema.files.items()
        named = type(schema.descriptor)()
        named.CopyFrom(schema.descriptor)
        named.name = reference.name
        yield reference.name, named


def _imported_files(paths: Sequence[str], known: dict[str, Any]) -> dict[str, Any]:
    """Return the descriptors of imports, each after the files that it imports itself."""
    found: dict[str, Any] = {}
    for path in paths:
        file = known.get(path)
        if file is None:
            file = _built_in(path)
        if file is None:
            raise InvalidSchema(
                f"the import {path!r} was not found: it is neither the name of a reference "
                "nor a file of Google's Protobuf libraries"
            )
        # Before the file itself, because a pool accepts a file only after its imports.
        found |= _imported_files(file.dependency, known)
        found[path] = file
    return found


def _built_in(path: str) -> Any:
    """Return the descriptor of a file that comes with the libraries; None if it is not known."""
    # Imported here, because this library is optional; it was present for parsing.
    from google.protobuf import descriptor_pb2, descriptor_pool

    google = BUILT_IN.fullmatch(path)
    if google is not None:
        try:
            import_module(google.group(1).replace("/", ".") + "_pb2")
        except ImportError:
            return None
    elif CONFLUENT.fullmatch(path) is None:
        return None
    try:
        known = descriptor_pool.Default().FindFileByName(path)
    except KeyError:
        return None
    file = descriptor_pb2.FileDescriptorProto()
    known.CopyToProto(file)
    return file


def _compiled(text: str, files: dict[str, Any]) -> bytes:
    """Compile a ``.proto`` file; returns its descriptor in Protobuf's encoding."""
    if importlib.util.find_spec("grpc_tools") is None:
        missing = ImportError("a .proto file is parsed by grpcio-tools")
        raise library_missing("Protobuf", missing, package="grpcio-tools")
    # Imported here, because this library is optional; it was present for parsing.
    from google.protobuf import descriptor_pb2

    with tempfile.TemporaryDirectory(prefix="sharegroup-proto-") as folder:
        place = Path(folder)
        (place / MAIN_FILE).write_text(text, encoding="utf-8")
        imported = descriptor_pb2.FileDescriptorSet(file=files.values())
        (place / "imports.bin").write_bytes(imported.SerializeToString())
        options = ["-I.", "--descriptor_set_out=out.bin"]
        if files:
            options.append("--descriptor_set_in=imports.bin")
        command = [sys.executable, "-m", "grpc_tools.protoc", *options, MAIN_FILE]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=COMPILE_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InvalidSchema(
                f"the compiler did not finish within {COMPILE_SECONDS_MAX} s"
            ) from error
        if done.returncode != 0:
            reason = " ".join(done.stderr.split())
            raise InvalidSchema(
                f"expected a .proto file whose imports are references of the schema: {reason}"
            )
        compiled = descriptor_pb2.FileDescriptorSet.FromString((place / "out.bin").read_bytes())
    return bytes(compiled.file[-1].SerializeToString())


# Comparing schemas.


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
