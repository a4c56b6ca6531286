"""`from_registry`: a column of values with a schema in a schema registry, decoded.

Example::

    orders = batch.withColumn("order", from_registry("value", url, "id long")).persist()
    unreadable = orders.where("order.error is not null")
    dead_letter(unreadable, "warehouse.dead", message=col("order.error"))
    orders.where("order.error is null").select("order.value.*")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from sharegroup.schema_registry.decoding import PREFIX_BYTES, Decode, UnreadableValue, schema_id_of

ERROR_CHARACTERS_MAX = 1_000


def from_registry(
    value: str | Column,
    url: str,
    schema: str | DataType,
    *,
    reader_schema: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Column:
    """Decode a column of Avro, JSON or Protobuf values with the schemas of a schema registry.

    Returns a column of structs: ``value`` of the type ``schema``, ``error``, and ``schemaId``.  If
    a value cannot be decoded or does not fit the type, ``value`` is null and ``error`` says why;
    fields that a value lacks are null.  ``reader_schema`` is an Avro schema to which values are
    resolved.  ``options`` are those of Confluent's client, such as ``basic.auth.user.info``.

    A registry that does not answer within its time limits fails the task.
    """
    kind = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    decoded = StructType(
        [
            StructField("value", kind),
            StructField("error", StringType()),
            StructField("schemaId", IntegerType()),
        ]
    )
    arrow_kind = to_arrow_type(kind, timezone="UTC")
    chosen = dict(options or {})

    def decode(values: pa.Array) -> pa.Array:
        # Imported here, because only executors need it.
        from sharegroup.schema_registry.schemas import schemas_of

        decode_of = schemas_of(url, chosen, reader_schema).decode_of
        return decoded_column(values.to_pylist(), decode_of, arrow_kind)

    # PySpark's annotations lack structs as types of results.
    column: Column = arrow_udf(decode, decoded)(value)  # type: ignore[call-overload]
    return column


def decoded_column(
    values: Iterable[bytes | None], decode_of: Callable[[int], Decode], kind: pa.DataType
) -> pa.StructArray:
    """Return the decoded values, the errors and the schema ids of a batch."""
    found: list[Any] = []
    errors: list[str | None] = []
    ids: list[int | None] = []
    for value in values:
        decoded = error = schema_id = None
        if value is not None:
            try:
                schema_id = schema_id_of(value)
                decode = decode_of(schema_id)
            except UnreadableValue as unreadable:
                error = _text(str(unreadable))
            else:
                decoded, error = _decoded(decode, value, schema_id, kind)
        found.append(decoded)
        errors.append(error)
        ids.append(None if schema_id is None or schema_id >= 2**31 else schema_id)
    column = _column(found, errors, kind)
    return pa.StructArray.from_arrays(
        [column, pa.array(errors, pa.string()), pa.array(ids, pa.int32())],
        names=["value", "error", "schemaId"],
    )


def _decoded(
    decode: Decode, value: bytes, schema_id: int, kind: pa.DataType
) -> tuple[Any, str | None]:
    """Return the value in Arrow's form, or an error."""
    try:
        return _fitting(decode(value[PREFIX_BYTES:]), kind), None
    except Exception as error:  # noqa: BLE001  Three libraries, and bytes of any content.
        return None, _text(f"schema {schema_id}: {type(error).__name__}: {error}")


def _text(error: str) -> str:
    """Return the text of an error, shortened, in characters that Arrow can store."""
    # A schema is JSON of the user who registered it, which may have lone surrogates.
    return error[:ERROR_CHARACTERS_MAX].encode(errors="backslashreplace").decode()


def _column(found: Sequence[Any], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    """Return the values as a column; those that do not fit become null and get an error."""
    try:
        return pa.array(found, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass  # Some value does not fit: each one is tried alone.
    fitting = list(found)
    for row, value in enumerate(found):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            fitting[row] = None
            errors[row] = _text(f"the value does not fit the type of the column: {error}")
    return pa.array(fitting, kind)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a decoded value in the form in which Arrow takes values of this type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, Mapping):
            raise UnreadableValue(f"expected fields, found {type(value).__name__}")
        return {field.name: _fitting(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        if not isinstance(value, Mapping):
            raise UnreadableValue(f"expected a map, found {type(value).__name__}")
        return [
            (_fitting(key, kind.key_type), _fitting(item, kind.item_type))
            for key, item in value.items()
        ]
    if pa.types.is_list(kind):
        # Texts and maps are iterable, too: their characters and keys would become the elements.
        if not isinstance(value, list | tuple):
            raise UnreadableValue(f"expected an array, found {type(value).__name__}")
        return [_fitting(element, kind.value_type) for element in value]
    if pa.types.is_string(kind) and isinstance(value, UUID | Decimal):
        return str(value)
    return value
