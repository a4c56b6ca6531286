"""Changes of Protobuf files that are compatible, and those that are not.

The files are parsed by Google's compiler, in processes of their own.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from google.protobuf import descriptor_pb2

from sharegroup.testing import SchemaRegistry, run_schema_registry
from sharegroup.testing.registry.errors import IncompatibleSchema, InvalidSchema

PROTO3 = 'syntax = "proto3"; package air; '
PROTO2 = 'syntax = "proto2"; package air; '
ENUM = " enum Kind { NONE = 0; FAST = 1; }"


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with run_schema_registry() as registry:
        yield registry


def message(fields: str) -> str:
    return PROTO3 + "message M { " + fields + " }" + ENUM


COMPATIBLE = {
    "new and removed fields": (message("int32 a = 1;"), message("string b = 2;")),
    "another name": (message("int32 a = 1;"), message("int32 b = 1;")),
    "wider number": (message("int32 a = 1;"), message("uint64 a = 1;")),
    "enumeration to number": (message("Kind a = 1;"), message("bool a = 1;")),
    "text to bytes": (message("string a = 1;"), message("bytes a = 1;")),
    "single to repeated text": (message("string a = 1;"), message("repeated string a = 1;")),
    "optional": (message("int32 a = 1;"), message("optional int32 a = 1;")),
    "a removed optional field": (
        message("optional int32 a = 1; int32 b = 2;"),
        message("int32 b = 2;"),
    ),
    "a field into a new oneof": (message("int32 a = 1;"), message("oneof o { int32 a = 1; }")),
    "more of a oneof": (
        message("oneof o { int32 a = 1; }"),
        message("oneof o { int32 a = 1; int32 b = 2; }"),
    ),
    "a oneof dissolved": (message("oneof o { int32 a = 1; }"), message("int32 a = 1;")),
    "a map": (message("map<string, int32> a = 1;"), message("map<string, int64> a = 1;")),
    "a new message": (PROTO3 + "message A {}", PROTO3 + "message B {} message A {}"),
    "recursive": (message("M a = 1;"), message("M a = 1; int32 b = 2;")),
    "a removed enumeration": (message("int32 a = 1;"), PROTO3 + "message M { int32 a = 1; }"),
    "an optional field of proto2": (
        PROTO2 + "message M { required int32 a = 1; }",
        PROTO2 + "message M { required int32 a = 1; optional int32 b = 2; }",
    ),
}

INCOMPATIBLE = {
    "another package": (
        message("int32 a = 1;"),
        'syntax = "proto3"; message M { int32 a = 1; }',
        "the package changed from air to none",
    ),
    "a removed message": (
        PROTO3 + "message A { message B {} }",
        PROTO3 + "message A {}",
        "message air.A.B: it was removed",
    ),
    "a number to a text": (
        message("int32 a = 1;"),
        message("string a = 1;"),
        "message air.M, field 1: the type changed from int32 to string",
    ),
    "another encoding of a number": (
        message("int32 a = 1;"),
        message("sint32 a = 1;"),
        "the type changed from int32 to sint32",
    ),
    "repeated to single": (
        message("repeated int32 a = 1;"),
        message("int32 a = 1;"),
        "a number changed between repeated and single",
    ),
    "another message": (
        PROTO3 + "message A {} message B {} message M { A a = 1; }",
        PROTO3 + "message A {} message B {} message M { B a = 1; }",
        "the type changed from air.A to air.B",
    ),
    "a map to messages": (
        PROTO3 + "message A {} message M { map<string, A> a = 1; }",
        PROTO3 + "message A {} message M { repeated A a = 1; }",
        "message air.M, field 1: the type changed",
    ),
    "the value of a map": (
        message("map<string, int32> a = 1;"),
        message("map<string, string> a = 1;"),
        "field 1, value of the map: the type changed from int32 to string",
    ),
    "a field less in a oneof": (
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        message("oneof o { int32 a = 1; }"),
        "field 2: the field was removed from the oneof o",
    ),
    "two fields into a oneof": (
        message("int32 a = 1; int32 b = 2;"),
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        "several fields moved into the oneof o: [1, 2]",
    ),
    "a field into an old oneof": (
        message("oneof o { int32 a = 1; } int32 b = 2;"),
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        "field 2 moved into the oneof o, which existed before",
    ),
    "a new required field": (
        PROTO2 + "message M {}",
        PROTO2 + "message M { required int32 a = 1; }",
        "field 1: a required field was added",
    ),
    "a removed required field": (
        PROTO2 + "message M { required int32 a = 1; }",
        PROTO2 + "message M {}",
        "field 1: a required field was removed",
    ),
}


@pytest.mark.parametrize("pair", COMPATIBLE.items(), ids=COMPATIBLE.keys())
def test_readable_change_is_registered(
    registry: SchemaRegistry, pair: tuple[str, tuple[str, str]]
) -> None:
    subject, texts = pair
    for text in texts:
        registry.register(subject, text, schema_type="PROTOBUF")
    assert registry.schemas(subject) == list(texts)


@pytest.mark.parametrize("case", INCOMPATIBLE.items(), ids=INCOMPATIBLE.keys())
def test_unreadable_change_is_refused_with_its_place(
    registry: SchemaRegistry, case: tuple[str, tuple[str, str, str]]
) -> None:
    subject, (old, new, reason) = case
    registry.register(subject, old, schema_type="PROTOBUF")
    with pytest.raises(IncompatibleSchema) as refused:
        registry.register(subject, new, schema_type="PROTOBUF")
    assert reason in str(refused.value)
    assert registry.schemas(subject) == [old]


def test_change_in_an_imported_file_is_found(registry: SchemaRegistry) -> None:
    def route(version: int) -> dict[str, object]:
        return {"name": "place.proto", "subject": "imported", "version": version}

    registry.set_compatibility("NONE", subject="imported")
    for kind in ("string", "int32"):
        text = PROTO3 + "message Place { " + kind + " code = 1; }"
        registry.register("imported", text, schema_type="PROTOBUF")
    text = PROTO3 + 'import "place.proto"; message Route { Place start = 1; }'
    registry.register("importing", text, schema_type="PROTOBUF", references=[route(1)])
    with pytest.raises(IncompatibleSchema, match=r"air\.Place, field 1: the type changed"):
        registry.register("importing", text, schema_type="PROTOBUF", references=[route(2)])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROTO3 + "message M { int32 a = 1; int32 b = 1; }", "Field number 1 has already been"),
        (PROTO3 + 'import "no.proto"; message M {}', "no.proto"),
        (PROTO3 + 'import "google/protobuf/none.proto"; message M {}', "none.proto"),
        (PROTO3 + "message M { Missing a = 1; }", '"Missing" is not defined'),
        ("0123456789abcdef", "a file descriptor in base64"),
    ],
)
def test_invalid_file_is_refused_with_the_reason(
    registry: SchemaRegistry, text: str, reason: str
) -> None:
    with pytest.raises(InvalidSchema) as refused:
        registry.register("invalid", text, schema_type="PROTOBUF")
    assert reason in str(refused.value)


def test_descriptor_with_an_unknown_import_is_refused(registry: SchemaRegistry) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["b.proto"])
    text = base64.b64encode(file.SerializeToString()).decode()
    with pytest.raises(InvalidSchema, match=r"the import 'b\.proto' was not found"):
        registry.register("invalid", text, schema_type="PROTOBUF")


def test_normalized_file_has_no_layout(registry: SchemaRegistry) -> None:
    """A file and its descriptor have one id, whatever the comments and names of files are."""
    plain = registry.register(
        "layout", PROTO3 + "message L { int32 a = 1; }", schema_type="PROTOBUF"
    )
    spaced = "// A comment.\n" + PROTO3 + "message L {\n  int32 a = 1;  // Another.\n}\n"
    assert registry.register("spaced", spaced, schema_type="PROTOBUF") == plain
    file = descriptor_pb2.FileDescriptorProto(name="l.proto", package="air", syntax="proto3")
    file.message_type.add(name="L").field.add(name="a", number=1, type="TYPE_INT32", label=1)
    file.source_code_info.location.add(path=[4, 0], leading_comments="A comment.")
    described = base64.b64encode(file.SerializeToString()).decode()
    assert registry.register("described", described, schema_type="PROTOBUF") == plain
