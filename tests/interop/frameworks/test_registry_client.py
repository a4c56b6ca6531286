"""python-schema-registry-client, which Faust applications use, on our schema registry."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.testing import SchemaRegistry

registry_client = pytest.importorskip(
    "schema_registry.client",
    reason="python-schema-registry-client is not installed; make frameworks runs this",
)
serializers = pytest.importorskip("schema_registry.serializers")

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "total", "type": "int"}],
}
OTHER: dict[str, Any] = {**ORDER, "fields": [{"name": "sum", "type": "int"}]}


def test_values_are_read_by_another_client(sharegroup_schema_registry: SchemaRegistry) -> None:
    url = sharegroup_schema_registry.url
    writer, reader = (registry_client.SchemaRegistryClient(url) for _ in range(2))
    avro = registry_client.schema.AvroSchema(ORDER)
    value = serializers.AvroMessageSerializer(writer).encode_record_with_schema(
        "orders-value", avro, {"total": 3}
    )
    assert value == b"\x00\x00\x00\x00\x01\x06"
    assert serializers.AvroMessageSerializer(reader).decode_message(value) == {"total": 3}
    json_schema = registry_client.schema.JsonSchema(
        {"title": "Order", "type": "object", "properties": {"total": {"type": "integer"}}}
    )
    value = serializers.JsonMessageSerializer(writer).encode_record_with_schema(
        "json-value", json_schema, {"total": 3}
    )
    assert value[:5] == b"\x00\x00\x00\x00\x02"
    assert serializers.JsonMessageSerializer(reader).decode_message(value) == {"total": 3}


def test_subjects_and_levels_are_administered(sharegroup_schema_registry: SchemaRegistry) -> None:
    client = registry_client.SchemaRegistryClient(sharegroup_schema_registry.url)
    order = registry_client.schema.AvroSchema(ORDER)
    other = registry_client.schema.AvroSchema(OTHER)
    assert client.register("orders-value", order) == 1
    assert client.check_version("orders-value", order).version == 1
    assert client.test_compatibility("orders-value", other) is False
    assert client.update_compatibility("NONE", "orders-value")
    assert client.get_compatibility("orders-value") == "NONE"
    assert client.register("orders-value", other) == 2
    assert client.get_versions("orders-value") == [1, 2]
    assert client.get_subjects() == ["orders-value"]
    assert client.delete_subject("orders-value") == [1, 2]
