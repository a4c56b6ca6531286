"""A schema is data: its imports never import a Python module of another library."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2

from sharegroup.schema_registry.decoding import FetchedSchema, UnreadableValue, protobuf_decode

STRING, OPTIONAL, MESSAGE = 9, 1, 11


def schema_text(*imports: str, field_type: str = "") -> str:
    """A descriptor with one message, whose field ``a`` is a text or of an imported type."""
    field = descriptor_pb2.FieldDescriptorProto(
        name="a", number=1, label=OPTIONAL, type=MESSAGE if field_type else STRING
    )
    if field_type:
        field.type_name = field_type
    message = descriptor_pb2.DescriptorProto(name="Order", field=[field])
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", dependency=imports, message_type=[message], syntax="proto3"
    )
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.fixture
def hostile_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose module leaves a mark when it is imported."""
    package = tmp_path / "evilpkg"
    package.mkdir()
    mark = tmp_path / "it-ran"
    (package / "__init__.py").write_text("")
    (package / "run_pb2.py").write_text(f"open({str(mark)!r}, 'w').close()")
    (tmp_path / "google_protobuf_evil_pb2.py").write_text(f"open({str(mark)!r}, 'w').close()")
    monkeypatch.syspath_prepend(str(tmp_path))
    return mark


@pytest.mark.parametrize(
    "path",
    [
        "evilpkg/run.proto",
        "evilpkg.run.proto",
        "./evilpkg/run.proto",
        "google/protobuf/../../evilpkg/run.proto",
        "google_protobuf_evil.proto",
        "google/protobuf/evilpkg.run.proto",
        "antigravity.proto",
        "",
    ],
)
def test_an_import_runs_no_code(hostile_package: Path, path: str) -> None:
    loaded = set(sys.modules)
    with pytest.raises(UnreadableValue, match="nor a well-known file"):
        protobuf_decode(FetchedSchema(schema_text(path), {}))
    assert not hostile_package.exists()
    assert {name for name in set(sys.modules) - loaded if "evil" in name} == set()


def test_an_import_of_a_reference_runs_no_code(hostile_package: Path) -> None:
    inner = FetchedSchema(schema_text("evilpkg/run.proto"), {})
    with pytest.raises(UnreadableValue, match="nor a well-known file"):
        protobuf_decode(FetchedSchema(schema_text("inner.proto"), {"inner.proto": inner}))
    assert not hostile_package.exists()


def test_well_known_files_are_there() -> None:
    text = schema_text("google/protobuf/timestamp.proto", field_type=".google.protobuf.Timestamp")
    decode = protobuf_decode(FetchedSchema(text, {}))
    assert decode(b"\x00\x0a\x02\x08\x07")["a"].year == 1970
