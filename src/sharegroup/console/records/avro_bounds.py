"""Refuses Avro schemas with which a small value could become a very large document.

A schema is data of whoever registered it.  Decoding is bounded by the size of a value only if its
parts take bytes, so for each type are computed

    values    how many values it has at least, for a union at most: nulls and records, too
    bytes     how many bytes they take at least

An array of nulls, a record that has itself without a union between, and records of records of
nulls have many values in few bytes.  A type that refers to itself is refused, too: its depth is
bounded by the value only, and fastavro ends the process at some ten thousand levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sharegroup.schema_registry.decoding import UnreadableValue

VALUES_MAX = 10_000
"""Values of a type without those of its arrays and maps."""
VALUES_PER_BYTE_MAX = 4
"""Values of an element of an array or a map for each of its bytes."""
BYTES = {"null": 0, "float": 4, "double": 8}
"""The bytes of primitive types that do not have at least one."""


class Size(NamedTuple):
    """The least size of a type."""

    values: int
    bytes: int


def check_avro(schema: Any, named: Mapping[str, Any]) -> None:
    """Raise UnreadableValue if small values of a parsed schema could become large documents."""
    _Sizes(named).of(schema)


class _Sizes:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, Size] = {}
        self._open: set[str] = set()

    def of(self, schema: Any) -> Size:
        """Return the size of a type; a name stands for its definition."""
        if isinstance(schema, list):
            return self._union([self.of(branch) for branch in schema])
        if isinstance(schema, str):
            if schema not in self._named:
                return Size(1, BYTES.get(schema, 1))
            return self._definition(schema, self._named[schema])
        kind = schema["type"]
        if kind in ("array", "map"):
            return self._repeated(self.of(schema["items" if kind == "array" else "values"]))
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema["name"], schema)
        return self.of(kind)

    def _definition(self, name: str, schema: Any) -> Size:
        if name in self._open:
            raise UnreadableValue(
                f"its schema refers to itself in {name!r:.100}, so it stays bytes"
            )
        if name not in self._known:
            self._open.add(name)
            self._known[name] = self._named_type(schema)
            self._open.discard(name)
        return self._known[name]

    def _named_type(self, schema: Any) -> Size:
        if schema["type"] == "fixed":
            return Size(1, int(schema["size"]))
        if schema["type"] == "enum":
            return Size(1, 1)
        sizes = [self.of(field["type"]) for field in schema["fields"]]
        values = 1 + sum(size.values for size in sizes)
        if values > VALUES_MAX:
            raise UnreadableValue(f"its schema has more than {VALUES_MAX} fields")
        return Size(values, sum(size.bytes for size in sizes))

    def _union(self, branches: list[Size]) -> Size:
        if not branches:
            raise UnreadableValue("its schema has a union of nothing")
        return Size(max(size.values for size in branches), 1 + min(size.bytes for size in branches))

    def _repeated(self, element: Size) -> Size:
        if element.values > VALUES_PER_BYTE_MAX * element.bytes:
            raise UnreadableValue("its schema repeats elements that take hardly any bytes")
        return Size(1, 1)
