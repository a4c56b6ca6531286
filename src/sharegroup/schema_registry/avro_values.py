"""Decodes Avro values, and refuses those with which a record could end the process.

Both schema and value are data of others.  fastavro recurses in C: a value of 8 kB of a type that
refers to itself ends the process.  An array of nulls takes six bytes for billions of values, and a
decimal of a megabyte takes minutes.  So three things are bounded: how deeply parts of a value are
within each other, how many values there are for each byte, and the size of a decimal.

Most schemas bound them by themselves, which is found once for each schema (`_Bounds`).  For the
others, `payload_check` returns a function that walks the bytes of a value before it is decoded.
No schema is refused for what its values could be.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sharegroup.schema_registry.decoding import Decode, FetchedSchema, UnreadableValue

DEPTH_MAX = 300
"""Records, arrays, maps and unions within each other.  A level takes about 700 bytes of C stack."""
VALUES_MAX = 10_000
"""Values, with records and nulls, that any payload may have."""
VALUES_PER_BYTE_MAX = 4
"""Further values for each byte of a payload."""
DECIMAL_BYTES_MAX = 4096
"""Size of a decimal: some 9,800 digits.  The time to convert it grows with its square."""
LONG_BITS = 64
BYTES = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}
"""The bytes of the primitive types, at least."""

CheckPayload = Callable[[bytes | memoryview], None]
"""Raises UnreadableValue for the payload of a value that must not be decoded."""


def avro_decode(schema: FetchedSchema, reader_schema: str | None) -> Decode:
    """Return the function that decodes Avro values, as ``reader_schema`` if there is one."""
    # Imported here, because this library is optional.
    from fastavro import parse_schema, schemaless_reader

    named: dict[str, Any] = {}
    _parse_references(schema, named)
    writer = parse_schema(json.loads(schema.text), named_schemas=named)
    check = payload_check(writer, named)
    reader = None if reader_schema is None else parse_schema(json.loads(reader_schema))

    def decode(payload: bytes) -> Any:
        if check is not None:
            check(payload)
        stream = io.BytesIO(payload)
        decoded = schemaless_reader(stream, writer, reader)
        # Bytes of another schema may decode by chance; what is left over shows it.
        if rest := len(payload) - stream.tell():
            raise UnreadableValue(f"{rest} bytes are left after the record")
        return decoded

    return decode


def _parse_references(schema: FetchedSchema, named: dict[str, Any]) -> None:
    """Add the schemas that a schema refers to, the innermost first."""
    # Imported here, because this library is optional.
    from fastavro import parse_schema

    for name, reference in schema.references.items():
        if name not in named:
            _parse_references(reference, named)
            parse_schema(json.loads(reference.text), named_schemas=named)


def payload_check(
    schema: Any, named: Mapping[str, Any], *, is_encoded: bool = False
) -> CheckPayload | None:
    """Return the check of a payload before it is decoded; None if the schema needs none.

    The schema is one of fastavro, parsed; ``named`` has the types that it does not define itself.
    An encoded payload is decrypted by rules of the schema first, so its parts cannot be checked.
    """
    definitions = dict(named)
    try:
        bound = _Bounds(definitions).of(schema)
    except RecursionError as error:
        raise UnreadableValue("its schema has too many types within each other") from error
    is_bounded = bound.excess <= VALUES_MAX
    if is_bounded and (is_encoded or not bound.has_decimals):
        return None
    if is_encoded:
        return _refuse_encoded
    step = _Steps(definitions).of(schema)
    # A smaller payload has no larger decimal.  Of other schemas even no bytes may be many values.
    bytes_min = DECIMAL_BYTES_MAX if is_bounded else 0

    def check(payload: bytes | memoryview) -> None:
        if len(payload) >= bytes_min:
            step(_Walk(payload), 0)

    return check


def _refuse_encoded(_payload: bytes | memoryview) -> None:
    raise UnreadableValue(
        "its schema refers to itself or repeats what takes no bytes, and has encoding rules, with "
        "which the size of a value cannot be checked; use such schemas without encoding rules"
    )


def _too_deep() -> UnreadableValue:
    return UnreadableValue(
        f"expected records, arrays, maps and unions up to {DEPTH_MAX} deep, found deeper ones"
    )


class _Bound(NamedTuple):
    """What the values of a type can be."""

    excess: float
    """The most values that they have beyond `VALUES_PER_BYTE_MAX` for each byte; inf: no limit."""
    height: int
    has_decimals: bool = False


UNBOUNDED = _Bound(math.inf, 0)


class _Bounds:
    """Finds the bounds of the types of a schema."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        """Prepare for a schema; its own definitions are added to these."""
        self._definitions = definitions
        self._known: dict[str, _Bound] = {}
        self._open: set[str] = set()

    def of(self, schema: Any) -> _Bound:
        """Return the bound of a type; a name stands for its definition."""
        if isinstance(schema, list):
            return self._joined(-VALUES_PER_BYTE_MAX, max, [self.of(branch) for branch in schema])
        if isinstance(schema, str):
            if schema not in self._definitions:
                if schema not in BYTES:
                    raise UnreadableValue(f"its schema has the unknown type {schema!r:.100}")
                return _Bound(1 - VALUES_PER_BYTE_MAX * BYTES[schema], 0)
            return self._definition(schema, self._definitions[schema])
        kind = schema["type"]
        is_decimal = schema.get("logicalType") == "decimal"
        if kind in ("array", "map"):
            element = self.of(schema["items" if kind == "array" else "values"])
            return self._repeated(element, key_bytes=int(kind == "map"))
        if kind == "fixed":
            self._definitions[schema["name"]] = schema
            return _Bound(1 - VALUES_PER_BYTE_MAX * int(schema["size"]), 0, is_decimal)
        if kind == "enum":
            self._definitions[schema["name"]] = schema
            return _Bound(1 - VALUES_PER_BYTE_MAX, 0)
        if kind in ("record", "error"):
            return self._definition(schema["name"], schema)
        return self.of(kind)._replace(has_decimals=is_decimal)

    def _definition(self, name: str, schema: Any) -> _Bound:
        self._definitions[name] = schema
        if schema["type"] not in ("record", "error"):
            return self.of(schema)
        if name in self._open:  # A type that refers to itself.
            return UNBOUNDED
        if name not in self._known:
            self._open.add(name)
            fields = [self.of(field["type"]) for field in schema["fields"]]
            self._known[name] = self._joined(1, sum, fields)
            self._open.discard(name)
        return self._known[name]

    def _joined(self, own: int, join: Callable[[list[float]], float], of: list[_Bound]) -> _Bound:
        """Return the bound of a type with parts of these bounds, of which all or one are there."""
        height = 1 + max((part.height for part in of), default=0)
        excess = own + join([part.excess for part in of] or [0])
        if height > DEPTH_MAX:
            excess = math.inf
        return _Bound(excess, height, any(part.has_decimals for part in of))

    def _repeated(self, element: _Bound, *, key_bytes: int) -> _Bound:
        further = element.excess - VALUES_PER_BYTE_MAX * key_bytes
        is_bounded = further <= 0 and element.height < DEPTH_MAX
        excess = 1 - VALUES_PER_BYTE_MAX if is_bounded else math.inf
        return _Bound(excess, element.height + 1, element.has_decimals)


class _Walk:
    """A position in a payload, and how many values it may still have."""

    __slots__ = ("_left", "_payload", "_position")

    def __init__(self, payload: bytes | memoryview) -> None:
        self._payload = payload
        self._position = 0
        self._left = VALUES_MAX + VALUES_PER_BYTE_MAX * len(payload)

    def long(self) -> int:
        """Return a number: zigzag, in groups of seven bits."""
        number = 0
        for shift in range(0, LONG_BITS, 7):
            if self._position >= len(self._payload):
                break
            byte = self._payload[self._position]
            self._position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise UnreadableValue("a number is cut off or has more than 64 bits")

    def skip(self, size: int) -> None:
        """Pass over bytes."""
        if not 0 <= size <= len(self._payload) - self._position:
            raise UnreadableValue(
                f"expected {size} bytes, found {len(self._payload) - self._position}"
            )
        self._position += size

    def check_count(self, count: int) -> None:
        """Raise UnreadableValue if there may not be so many values more."""
        if count > self._left:
            raise UnreadableValue(
                f"expected up to {VALUES_MAX} values and {VALUES_PER_BYTE_MAX} for each of "
                f"{len(self._payload)} bytes, found more"
            )

    def count(self) -> None:
        """Count a value."""
        self.check_count(1)
        self._left -= 1


Step = Callable[[_Walk, int], None]
"""Passes over a value at a depth."""


class _Steps:
    """Makes the functions that pass over values."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._named: dict[str, Step] = {}

    def of(self, schema: Any) -> Step:
        """Return the function for a type; a name stands for its definition."""
        if isinstance(schema, list):
            return _union([self.of(branch) for branch in schema])
        if isinstance(schema, str):
            if schema not in self._definitions:
                return _primitive(schema, is_decimal=False)
            return self._definition(schema)
        kind = schema["type"]
        if kind == "array":
            return _blocks(self.of(schema["items"]), has_keys=False)
        if kind == "map":
            return _blocks(self.of(schema["values"]), has_keys=True)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema["name"])
        return _primitive(kind, is_decimal=schema.get("logicalType") == "decimal")

    def _definition(self, name: str) -> Step:
        if name in self._named:
            return self._named[name]
        schema = self._definitions[name]
        if schema["type"] == "enum":
            return _primitive("int", is_decimal=False)
        if schema["type"] == "fixed":
            size = int(schema["size"])
            return _fixed(size, is_decimal=schema.get("logicalType") == "decimal")
        fields: list[Step] = []

        def record(walk: _Walk, depth: int) -> None:
            if depth >= DEPTH_MAX:
                raise _too_deep()
            walk.count()
            for field in fields:
                field(walk, depth + 1)

        self._named[name] = record  # Before its fields, which may be of this type.
        fields += [self.of(field["type"]) for field in schema["fields"]]
        return record


def _union(branches: list[Step]) -> Step:
    def union(walk: _Walk, depth: int) -> None:
        if depth >= DEPTH_MAX:
            raise _too_deep()
        index = walk.long()
        if not 0 <= index < len(branches):
            raise UnreadableValue(
                f"expected one of {len(branches)} types of a union, found {index}"
            )
        branches[index](walk, depth + 1)

    return union


def _blocks(element: Step, *, has_keys: bool) -> Step:
    def blocks(walk: _Walk, depth: int) -> None:
        if depth >= DEPTH_MAX:
            raise _too_deep()
        walk.count()
        while count := walk.long():
            if count < 0:  # Then the size of the block follows.
                count = -count
                walk.long()
            walk.check_count(count)
            for _ in range(count):
                if has_keys:
                    walk.skip(walk.long())
                element(walk, depth + 1)

    return blocks


def _primitive(kind: str, *, is_decimal: bool) -> Step:
    if kind in ("bytes", "string"):

        def text(walk: _Walk, _depth: int) -> None:
            walk.count()
            size = walk.long()
            if is_decimal:
                _check_decimal(size)
            walk.skip(size)

        return text
    if kind in ("int", "long"):

        def number(walk: _Walk, _depth: int) -> None:
            walk.count()
            walk.long()

        return number
    return _fixed(BYTES[kind], is_decimal=False)


def _fixed(size: int, *, is_decimal: bool) -> Step:
    def fixed(walk: _Walk, _depth: int) -> None:
        walk.count()
        if is_decimal:
            _check_decimal(size)
        walk.skip(size)

    return fixed


def _check_decimal(size: int) -> None:
    if size > DECIMAL_BYTES_MAX:
        raise UnreadableValue(f"expected decimals of up to {DECIMAL_BYTES_MAX} bytes, found {size}")
