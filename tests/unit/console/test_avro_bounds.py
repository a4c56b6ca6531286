"""Avro schemas with which small values would become large documents are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sharegroup.console.records.avro_bounds import check_avro
from sharegroup.schema_registry.decoding import FetchedSchema, UnreadableValue, avro_decode

pytest.importorskip("fastavro")


def record(name: str, *types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def doubling(levels: int) -> Any:
    """A record of two records of two records …, and nulls at the end."""
    inner: Any = record("R0", "null", "null")
    for number in range(1, levels):
        inner = record(f"R{number}", inner, inner["name"])
    return inner


def checked(schema: Any) -> None:
    avro_decode(FetchedSchema(json.dumps(schema), {}), None, check_avro)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (array("null"), "hardly any bytes"),
        (array(record("Empty")), "hardly any bytes"),
        ({"type": "map", "values": array({"type": "fixed", "name": "F", "size": 0})}, "hardly any"),
        (record("Outer", array(record("Inner", "int", *["null"] * 9))), "hardly any bytes"),
        (array(["int", doubling(8)]), "hardly any bytes"),
        (doubling(40), "more than 10000 fields"),
        (record("Self", "Self"), "refers to itself in 'Self'"),
        (record("Node", ["null", "Node"]), "refers to itself"),
        (record("A", array(record("B", "int", ["null", array("A")]))), "refers to itself"),
        (record("None", []), "union of nothing"),
    ],
    ids=str,
)  # fmt: skip
def test_schema_that_amplifies_is_refused(schema: Any, text: str) -> None:
    with pytest.raises(UnreadableValue, match=text):
        checked(schema)


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        ["null", "long"],
        record("Order", "long", ["null", "string"], array("string")),
        {"type": "map", "values": "int"},
        record("Outer", array(record("Inner", "int", ["null", "double"])), "Inner"),
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        record("Kinds", {"type": "enum", "name": "E", "symbols": ["A"]},
               {"type": "fixed", "name": "F", "size": 16}, {"type": "string"}),
    ],
    ids=str,
)  # fmt: skip
def test_usual_schema_is_used(schema: Any) -> None:
    checked(schema)
