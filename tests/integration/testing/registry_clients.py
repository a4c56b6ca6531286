"""Confluent's registry client, imported without the warnings of the libraries that it uses."""

from __future__ import annotations

import warnings

# The libraries raise them at import, whatever the filters are; they concern their authors.
with warnings.catch_warnings(record=True):
    from confluent_kafka.schema_registry import (
        AsyncSchemaRegistryClient,
        Schema,
        SchemaReference,
        SchemaRegistryClient,
    )
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.error import SchemaRegistryError
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

__all__ = [
    "AsyncSchemaRegistryClient",
    "AvroDeserializer",
    "AvroSerializer",
    "JSONDeserializer",
    "JSONSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Schema",
    "SchemaReference",
    "SchemaRegistryClient",
    "SchemaRegistryError",
]
