"""Decoded values as a column: what does not fit its type is null, and the error says why."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sharegroup.schema_registry.decoding import Decode, UnreadableValue, json_decode
from sharegroup.spark.registry.columns import decoded_column

PREFIX = b"\0\0\0\0\7"


def decoded(payload: bytes, kind: pa.DataType, decode: Decode = json_decode) -> dict[str, Any]:
    row: dict[str, Any] = decoded_column([PREFIX + payload], lambda _: decode, kind).to_pylist()[0]
    return row


@pytest.mark.parametrize("payload", [b'"abc"', b'{"a": 1}', b"5", b"true"])
def test_only_an_array_fits_an_array(payload: bytes) -> None:
    """The characters of a text and the keys of a map are not its elements."""
    row = decoded(payload, pa.list_(pa.string()))
    assert (row["value"], row["schemaId"]) == (None, 7)
    assert "expected an array, found" in row["error"]


@pytest.mark.parametrize("payload", [b'"abc"', b"[1]", b"5"])
def test_only_a_map_fits_a_map(payload: bytes) -> None:
    row = decoded(payload, pa.map_(pa.string(), pa.int64()))
    assert row["value"] is None
    assert "expected a map, found" in row["error"]


def test_arrays_and_maps_are_taken() -> None:
    kind = pa.struct([("a", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))])
    row = decoded(b'{"a": [1, null], "m": {"x": 2}}', kind)
    assert (row["value"], row["error"]) == ({"a": [1, None], "m": [("x", 2)]}, None)


def test_error_with_a_lone_surrogate_is_an_error_of_its_row_alone() -> None:
    """The text of a schema is JSON, which can contain one."""

    def fail(payload: bytes) -> Any:
        raise ValueError("unknown type \ud800")

    def unusable(schema_id: int) -> Decode:
        raise UnreadableValue("schema 7 is not usable: \ud800")

    assert decoded(b"", pa.string(), fail)["error"].endswith("unknown type \\ud800")
    (row,) = decoded_column([PREFIX], unusable, pa.string()).to_pylist()
    assert row["error"] == "schema 7 is not usable: \\ud800"
