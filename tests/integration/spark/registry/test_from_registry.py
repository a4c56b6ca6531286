"""Values that Confluent's serializers wrote are columns; those that cannot be read are errors."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2
from pyspark.errors import PySparkException
from pyspark.sql import functions

from sharegroup.schema_registry.schemas import SCHEMAS_MAX, RegistryAway, close, schemas_of
from sharegroup.spark import dead_letter, from_registry
from sharegroup.spark.registry.columns import decoded_column
from sharegroup.testing import run_schema_registry
from tests.integration.spark.conftest import create_topic, produce, run_available, stream
from tests.integration.testing.registry_clients import (
    AvroSerializer,
    JSONSerializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from tests.integration.worker.dead import lying_in
from tests.support.chosen_broker import LONG_WITH_A_JVM

CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                   "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "customer", "type": ["null", CUSTOMER]},
    ],
}  # fmt: skip
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROW = {
    "id": 7,
    "total": Decimal("9.50"),
    "at": AT,
    "tags": {"a": 1},
    "customer": {"name": "Ada"},
}
ORDER_DDL = (
    "id long, total decimal(9,2), at timestamp, tags map<string,int>, customer struct<name string>"
)
KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("total", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.map_(pa.string(), pa.int32())),
        ("customer", pa.struct([("name", pa.string())])),
    ]
)
ID_ONLY = pa.struct([("id", pa.int64())])


@pytest.fixture(autouse=True)
def no_connections():
    """Close the connections that a test has opened in this process."""
    yield
    close()


@pytest.fixture
def registry():
    with run_schema_registry() as running:
        yield running


def serialized(registry, serializer, *payloads):
    """Serialize with Confluent's serializer, which registers the schema."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    with SchemaRegistryClient({"url": registry.url}) as client:
        serialize = serializer(client)
        context = SerializationContext("orders", MessageField.VALUE)
        return [serialize(payload, context) for payload in payloads]


def avro(registry, *payloads, schema=ORDER):
    return serialized(
        registry, lambda client: AvroSerializer(client, json.dumps(schema)), *payloads
    )


def decoded(registry, values, kind=KIND, reader_schema=None, **options):
    decode_of = schemas_of(registry.url, options, reader_schema).decode_of
    return decoded_column(values, decode_of, kind).to_pylist()


def test_avro_values_have_their_logical_types(registry):
    assert decoded(registry, [*avro(registry, ROW), None]) == [
        {"value": {**ROW, "tags": [("a", 1)]}, "error": None, "schemaId": 1},
        {"value": None, "error": None, "schemaId": None},
    ]


def test_avro_values_are_resolved_to_the_readers_schema(registry):
    reader = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": "string", "default": "none"},
        ],
    }
    kind = pa.struct([("id", pa.int64()), ("note", pa.string())])
    (row,) = decoded(registry, avro(registry, ROW), kind, json.dumps(reader))
    assert row["value"] == {"id": 7, "note": "none"}


def test_avro_schema_is_read_with_the_schemas_that_it_refers_to(registry):
    registry.register("customer", CUSTOMER)
    order = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "customer", "type": "shop.Customer"}],
    }
    reference = SchemaReference("shop.Customer", "customer", 1)
    schema = Schema(json.dumps(order), "AVRO", [reference])
    values = serialized(
        registry,
        lambda client: AvroSerializer(client, schema),
        {"customer": {"name": "Ada"}},
    )
    kind = pa.struct([("customer", pa.struct([("name", pa.string())]))])
    (row,) = decoded(registry, values, kind)
    assert row["value"] == {"customer": {"name": "Ada"}}


def test_json_values_lack_what_their_columns_have_and_the_other_way_round(registry):
    schema = '{"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}}'
    values = serialized(
        registry,
        lambda client: JSONSerializer(schema, client),
        {"id": 7, "more": True},
    )
    kind = pa.struct([("id", pa.int64()), ("note", pa.string())])
    (row,) = decoded(registry, values, kind)
    assert row["value"] == {"id": 7, "note": None}


def test_protobuf_values_are_read_without_generated_classes(registry):
    message = timestamp_pb2.Timestamp
    sent = message()
    sent.FromDatetime(AT)
    values = serialized(registry, lambda client: ProtobufSerializer(message, client), sent)
    (row,) = decoded(registry, values, pa.timestamp("us", tz="UTC"))
    assert row == {"value": AT, "error": None, "schemaId": 1}


def test_protobuf_fields_maps_enums_and_nested_messages_are_columns(registry):
    from google.protobuf import struct_pb2

    sent = struct_pb2.Struct()
    sent.update({"total": 9.5, "open": None})
    values = serialized(
        registry, lambda client: ProtobufSerializer(struct_pb2.Struct, client), sent
    )
    content = pa.struct([("number_value", pa.float64()), ("null_value", pa.string())])
    kind = pa.struct([("fields", pa.map_(pa.string(), content))])
    (row,) = decoded(registry, values, kind)
    assert dict(row["value"]["fields"]) == {
        "total": {"number_value": 9.5, "null_value": None},
        "open": {"number_value": None, "null_value": "NULL_VALUE"},
    }


@pytest.mark.parametrize(
    ("value", "error", "schema_id"),
    [
        (b"", "expected a zero byte and a schema id, found 0 bytes", None),
        (b'{"id": 1}', "expected a zero byte and a schema id, found 9 bytes: 7b 22 69 64 22", None),
        (b"\0\0\0\0\x63abc", "schema 99 is unknown to the schema registry http://", 99),
        (b"\0\0\0\0\x01", "schema 1: EOFError", 1),
        (b"\0\0\0\0\x01\x0e\x00", "schema 1: UnreadableValue: 1 bytes are left after", 1),
        (b"\0\0\0\0\x01" + b"\xff" * 9 + b"\x01", "does not fit the type of the column", 1),
    ],
)
def test_unreadable_value_is_an_error_and_the_others_are_read(registry, value, error, schema_id):
    simple = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    (good,) = avro(registry, {"id": 1}, schema=simple)
    kind = pa.struct([("id", pa.int8())])
    first, bad, last = decoded(registry, [good, value, good], kind)
    assert first["value"] == last["value"] == {"id": 1}
    assert first["error"] is last["error"] is None
    assert bad["value"] is None
    assert error in bad["error"]
    assert bad["schemaId"] == schema_id


def test_value_that_would_end_the_executor_is_an_error_of_its_row(registry):
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "id", "type": "long"}, {"name": "next", "type": ["null", "Node"]}],
    }
    (good,) = avro(registry, {"id": 1, "next": {"id": 2, "next": None}}, schema=node)
    deep = good[:5] + b"\x00\x02" * 32_000 + b"\x00\x00"
    nulls = registry.register("nulls", {"type": "array", "items": "null"})
    many = b"\0" + nulls.to_bytes(4, "big") + b"\xfe\xff\xff\xff\xff\x0f\x00"
    first, bad, worse, last = decoded(registry, [good, deep, many, good], ID_ONLY)
    assert first["value"] == last["value"] == {"id": 1}
    assert bad["value"] is worse["value"] is None
    assert "up to 300 deep, found deeper ones" in bad["error"]
    assert "up to 10000 values and 4 for each of 7 bytes, found more" in worse["error"]


def test_schemas_are_fetched_once_and_their_number_is_bounded(registry):
    schemas = schemas_of(registry.url, {}, None)
    first = registry.register("first", '"long"')
    decode = schemas.decode_of(first)
    for number in range(SCHEMAS_MAX):
        schema = {"type": "fixed", "name": f"f{number}", "size": 1}
        schemas.decode_of(registry.register(f"s{number}", schema))
    assert schemas.decode_of(first) is not decode, "the least recently used one was dropped"
    assert schemas.decode_of(first) is schemas.decode_of(first)
    assert schemas_of(registry.url, {}, None) is schemas


@pytest.mark.slow
def test_registry_that_does_not_answer_is_no_error_of_a_row():
    with run_schema_registry() as registry:
        (value,) = avro(registry, ROW)
    with pytest.raises(RegistryAway, match=r"does not answer: .*; expected a registry there"):
        decoded(registry, [value])


@LONG_WITH_A_JVM
def test_unreadable_rows_of_a_stream_become_dead_letters(
    spark, bootstrap, topic, group, registry, tmp_path
):
    dead = create_topic(bootstrap, partitions=1)
    produce(bootstrap, topic, *avro(registry, ROW), b"one apple")
    found = []

    def work(batch, _):
        column = from_registry("value", registry.url, ORDER_DDL)
        rows = batch.withColumn("order", column).persist()
        unreadable = rows.where("order.error is not null")
        dead_letter(unreadable, dead, message=functions.col("order.error"))
        found.extend(rows.where("order.error is null").select("order.value.*").collect())

    frame = stream(spark, bootstrap, topic, group)
    run_available(frame, tmp_path / "checkpoint", work)
    naive = {**ROW, "at": AT.replace(tzinfo=None)}
    assert [row.asDict(recursive=True) for row in found] == [naive]
    (letter,) = asyncio.run(lying_in(bootstrap, dead))
    headers = dict(letter.headers)
    assert letter.value == b"one apple"
    assert headers["__dlq.errors.message"].startswith(b"expected a zero byte and a schema id")


@LONG_WITH_A_JVM
def test_stopped_registry_fails_the_query_with_its_address(spark):
    with run_schema_registry() as registry:
        (value,) = avro(registry, ROW)
    frame = spark.createDataFrame([(value,)], "value binary")
    column = from_registry("value", registry.url, ORDER_DDL, options={"max.retries": 0})
    with pytest.raises(PySparkException, match="does not answer"):
        frame.select(column).collect()
