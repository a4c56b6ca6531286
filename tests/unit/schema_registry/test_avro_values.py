"""Avro schemas whose values must be checked, and the check of a value.

tests/integration/schema_registry has the values that would end a process.
"""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pytest

from sharegroup.schema_registry.avro_values import (
    DECIMAL_BYTES_MAX,
    DEPTH_MAX,
    VALUES_MAX,
    avro_decode,
    payload_check,
)
from sharegroup.schema_registry.decoding import Decode, FetchedSchema, UnreadableValue

fastavro = pytest.importorskip("fastavro")


def record(name: str, *types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def decode_of(schema: Any) -> Decode:
    return avro_decode(FetchedSchema(json.dumps(schema), {}), None)


def long(number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, "long", number)
    return stream.getvalue()


LIST = record("Node", ["null", "Node"])
TREE = record("Tree", "string", array("Tree"))
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        ["null", "long"],
        record("Order", "long", ["null", "string"], array("string")),
        {"type": "map", "values": "int"},
        record("Outer", array(record("Inner", "int", ["null", "double"])), "Inner"),
        array(["null", record("Wide", *["string"] * 100)]),
        record("Kinds", {"type": "enum", "name": "E", "symbols": ["A"]},
               {"type": "fixed", "name": "F", "size": 16}, {"type": "string"}),
        record("Two", record("One", "null"), ["null", "One"], array(record("Map", "int", "One"))),
    ],
    ids=str,
)  # fmt: skip
def test_usual_schema_needs_no_check(schema: Any) -> None:
    named: dict[str, Any] = {}
    assert payload_check(fastavro.parse_schema(schema, named_schemas=named), named) is None


def tree(depth: int) -> dict[str, Any]:
    return {"f0": "x", "f1": [tree(depth - 1), {"f0": "leaf", "f1": []}] if depth else []}


def chain(length: int) -> Any:
    return {"f0": chain(length - 1)} if length else {"f0": None}


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (TREE, tree(20)),
        (LIST, chain(140)),
        (array("null"), [None] * VALUES_MAX),
        (array(record("Empty")), [{}] * 50),
        (record("Node", MONEY, array("Node")), {"f0": Decimal("1.50"),
                                                "f1": [{"f0": Decimal("2.00"), "f1": []}]}),
        (record("M", {"type": "map", "values": "M"}), {"f0": {"a": {"f0": {"b": {"f0": {}}}}}}),
        (record("All", ["null", "All"], "boolean", "int", "long", "float", "double", "bytes",
                "string", {"type": "enum", "name": "E", "symbols": ["A", "B"]},
                {"type": "fixed", "name": "F", "size": 3}, array(["E", "F"]), "null"),
         {"f0": None, "f1": True, "f2": -5, "f3": 2**63 - 1, "f4": 0.5, "f5": 0.25, "f6": b"x",
          "f7": "é", "f8": "B", "f9": b"abc", "f10": ["A", b"xyz"], "f11": None}),
    ],
    ids=["tree", "list", "nulls", "empty", "decimals", "maps", "all kinds"],
)  # fmt: skip
def test_usual_value_of_an_unusual_schema_is_decoded(schema: Any, payload: Any) -> None:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), payload)
    assert decode_of(schema)(stream.getvalue()) == payload


def test_decimals_are_checked_only_where_one_could_be_too_large() -> None:
    decode = decode_of(record("Payment", MONEY, array("string")))
    text = long(3) + b"abc"
    small = long(2) + b"\x01\x00"
    assert decode(small + b"\x00")["f0"] == Decimal("2.56")
    assert len(decode(small + long(5_000) + text * 5_000 + b"\x00")["f1"]) == 5_000
    with pytest.raises(UnreadableValue, match=f"up to {DECIMAL_BYTES_MAX} bytes, found 4097"):
        decode(long(4_097) + b"\x01" * 4_097 + b"\x00")


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "cut off or"),
        (b"\x04", "one of 2 types"),
        (b"\x01", "one of 2 types"),
        (b"\xff" * 12, "more than 64 bits"),
        (b"\x02" * DEPTH_MAX, "300 deep"),
    ],
)
def test_bytes_of_another_form_are_unreadable(payload: bytes, text: str) -> None:
    with pytest.raises(UnreadableValue, match=text):
        decode_of(LIST)(payload)


def test_schema_that_is_too_deep_to_look_at_is_not_used() -> None:
    schema: Any = "int"
    for _ in range(2_000):
        schema = array(schema)
    with pytest.raises(UnreadableValue, match="too many types within each other"):
        payload_check(schema, {})


def test_a_type_of_itself_alone_has_no_values() -> None:
    with pytest.raises(UnreadableValue, match="300 deep"):
        decode_of(record("Self", "Self"))(b"")


@pytest.mark.parametrize("size", [-1, 9])
def test_text_ends_within_the_value(size: int) -> None:
    with pytest.raises(UnreadableValue, match=r"expected -?\d bytes, found 3"):
        decode_of(TREE)(long(size) + b"abc")


@pytest.mark.parametrize(("schema", "is_refused"), [(TREE, True), (MONEY, False), ("int", False)])
def test_encoded_payload_cannot_be_checked(schema: Any, is_refused: bool) -> None:
    check = payload_check(fastavro.parse_schema(schema), {}, is_encoded=True)
    assert (check is not None) is is_refused
    if check is not None:
        with pytest.raises(UnreadableValue, match="without encoding rules"):
            check(b"")
