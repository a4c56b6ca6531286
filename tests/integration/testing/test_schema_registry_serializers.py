"""Confluent's serializers write and read records with our registry, through our broker."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from sharegroup.testing import SchemaRegistry, TestBroker, run_schema_registry, schema_registry
from sharegroup.worker import App, Registry
from sharegroup.worker.payloads.codec import codec_for
from sharegroup.worker.payloads.registry import RegistryAway
from tests.integration.testing.registry_clients import (
    AsyncSchemaRegistryClient,
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from tests.support.limits import HANGING_SECONDS

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "number", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
        {"name": "left", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
FLIGHT_JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Flight",
    "type": "object",
    "properties": {"number": {"type": "string"}, "delay": {"type": "integer"}},
    "required": ["number"],
}


@pytest.fixture
def client(sharegroup_schema_registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": sharegroup_schema_registry.url}) as client:
        yield client


@pytest.fixture
def reader(sharegroup_schema_registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    """Another client, which knows nothing that the first one has registered."""
    with SchemaRegistryClient({"url": sharegroup_schema_registry.url}) as reader:
        yield reader


@pytest.fixture
def through_the_broker(sharegroup_broker: TestBroker) -> Iterator[Callable[[bytes], bytes]]:
    """A function that produces a value to the topic ``flights`` and returns it as consumed."""
    servers = {"bootstrap.servers": sharegroup_broker.bootstrap_servers}
    options = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**servers, **options})

    def send_and_receive(value: bytes) -> bytes:
        producer = Producer(servers)
        producer.produce("flights", value)
        assert producer.flush(HANGING_SECONDS) == 0
        consumer.subscribe(["flights"])
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        received = message.value()
        assert isinstance(received, bytes)
        return received

    yield send_and_receive
    consumer.close()


def context(topic: str = "flights") -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_goes_through_broker_and_registry(
    client: SchemaRegistryClient,
    reader: SchemaRegistryClient,
    through_the_broker: Callable[[bytes], bytes],
) -> None:
    flight = {"number": "LH 1", "delay": 7, "left": 1_700_000_000_000}
    value = through_the_broker(AvroSerializer(client, json.dumps(FLIGHT))(flight, context()))
    assert value[:5] == b"\x00\x00\x00\x00\x01"
    read = AvroDeserializer(reader)(value, context())
    assert (read["number"], read["delay"]) == ("LH 1", 7)
    assert client.get_subjects() == ["flights-value"]


def test_reader_of_a_newer_avro_schema_gets_its_defaults(
    client: SchemaRegistryClient, reader: SchemaRegistryClient
) -> None:
    flight = {"number": "LH 1", "delay": None, "left": 0}
    value = AvroSerializer(client, json.dumps(FLIGHT))(flight, context())
    newer = {
        **FLIGHT,
        "fields": [FLIGHT["fields"][0], {"name": "gate", "type": "string", "default": "none"}],
    }
    read = AvroDeserializer(reader, json.dumps(newer))(value, context())
    assert read == {"number": "LH 1", "gate": "none"}


def test_avro_type_of_another_subject_is_used(
    client: SchemaRegistryClient, reader: SchemaRegistryClient
) -> None:
    place = {
        "type": "record",
        "name": "Place",
        "namespace": "air",
        "fields": [{"name": "code", "type": "string"}],
    }
    client.register_schema("place", Schema(json.dumps(place), "AVRO"))
    route = {
        "type": "record",
        "name": "Route",
        "namespace": "air",
        "fields": [{"name": "start", "type": "Place"}, {"name": "end", "type": "air.Place"}],
    }
    schema = Schema(json.dumps(route), "AVRO", [SchemaReference("air.Place", "place", 1)])
    journey = {"start": {"code": "FRA"}, "end": {"code": "JFK"}}
    value = AvroSerializer(client, schema)(journey, context())
    assert value[:5] == b"\x00\x00\x00\x00\x02"
    assert AvroDeserializer(reader)(value, context()) == journey
    assert client.get_referenced_by("place", 1) == [2]


def test_json_goes_through_broker_and_registry(
    sharegroup_schema_registry: SchemaRegistry,
    client: SchemaRegistryClient,
    reader: SchemaRegistryClient,
    through_the_broker: Callable[[bytes], bytes],
) -> None:
    serializer = JSONSerializer(json.dumps(FLIGHT_JSON), client)
    value = through_the_broker(serializer({"number": "LH 1", "delay": 7}, context()))
    assert value[:5] == b"\x00\x00\x00\x00\x01"
    deserializer = JSONDeserializer(None, schema_registry_client=reader)
    assert deserializer(value, context()) == {"number": "LH 1", "delay": 7}
    assert sharegroup_schema_registry.schemas("flights-value") == [
        json.dumps(FLIGHT_JSON, separators=(",", ":"))
    ]


def flight_message() -> Any:
    """A message class, as generated code has it, with an import and a nested message."""
    file = descriptor_pb2.FileDescriptorProto(
        name="air/flight.proto",
        package="air",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    message = file.message_type.add(name="Flight")
    string, whole, nested = 9, 5, 11  # TYPE_STRING, TYPE_INT32, TYPE_MESSAGE
    message.field.add(name="flight_number", number=1, type=string, label=1)
    message.field.add(name="delay", number=2, type=whole, label=1)
    timestamp = ".google.protobuf.Timestamp"
    message.field.add(name="left", number=3, type=nested, label=1, type_name=timestamp)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("air.Flight"))


def test_protobuf_goes_through_broker_and_registry(
    client: SchemaRegistryClient,
    reader: SchemaRegistryClient,
    through_the_broker: Callable[[bytes], bytes],
) -> None:
    flight_class = flight_message()
    serializer = ProtobufSerializer(flight_class, client)
    value = through_the_broker(serializer(flight_class(flight_number="LH 1", delay=7), context()))
    assert value[:5] == b"\x00\x00\x00\x00\x01"
    deserializer = ProtobufDeserializer(flight_class, {}, reader)
    read = deserializer(value, context())
    assert (read.flight_number, read.delay) == ("LH 1", 7)


def test_proto_file_and_descriptor_have_one_id(
    sharegroup_schema_registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    """A Java client registers the file, a Python client the descriptor; both mean one schema."""
    text = """
    syntax = "proto3";
    package air;  // A comment, which does not count.
    import "google/protobuf/timestamp.proto";
    message Flight {
        string flight_number = 1;
        int32 delay = 2;
        google.protobuf.Timestamp left = 3;
    }
    """
    flight_class = flight_message()
    registered = sharegroup_schema_registry.register("flights-value", text, schema_type="PROTOBUF")
    value = ProtobufSerializer(flight_class, client)(flight_class(delay=7), context())
    assert int.from_bytes(value[1:5], "big") == registered == 1
    assert sharegroup_schema_registry.schemas("flights-value") == [text.strip()]
    serialized = client.get_version("flights-value", 1, fmt="serialized").schema.schema_str
    assert serialized is not None
    assert b"flight_number" in base64.b64decode(serialized)


def test_proto_file_imports_the_file_of_another_subject(
    sharegroup_schema_registry: SchemaRegistry,
) -> None:
    registry = sharegroup_schema_registry
    place = 'syntax = "proto3"; package air; message Place { string code = 1; }'
    route = (
        'syntax = "proto3"; package air; import "air/place.proto"; '
        "message Route { Place start = 1; }"
    )
    registry.register("place", place, schema_type="PROTOBUF")
    reference = {"name": "air/place.proto", "subject": "place", "version": 1}
    assert registry.register("route", route, schema_type="PROTOBUF", references=[reference]) == 2


def test_json_schema_uses_the_schema_of_another_subject(client: SchemaRegistryClient) -> None:
    place = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
    client.register_schema("place", Schema(json.dumps(place), "JSON"))
    route = {"title": "R", "type": "object", "properties": {"start": {"$ref": "place.json"}}}
    schema = Schema(json.dumps(route), "JSON", [SchemaReference("place.json", "place", 1)])
    serializer = JSONSerializer(schema, client)
    value = serializer({"start": {"code": "FRA"}}, context())
    assert JSONDeserializer(schema, schema_registry_client=client)(value, context()) == {
        "start": {"code": "FRA"}
    }


def test_asynchronous_client_on_the_loop_of_the_test() -> None:
    async def run() -> None:
        async with (
            schema_registry() as registry,
            AsyncSchemaRegistryClient({"url": registry.url}) as client,
        ):
            schema = Schema(json.dumps(FLIGHT), "AVRO")
            assert await client.register_schema("flights-value", schema) == 1
            assert await client.get_subjects() == registry.subjects() == ["flights-value"]

    asyncio.run(run())


def test_synchronous_client_in_a_coroutine_does_not_wait_for_itself() -> None:
    async def run() -> None:
        async with schema_registry() as registry:
            with SchemaRegistryClient({"url": registry.url, "timeout": 5}) as client:
                assert client.get_subjects() == []

    asyncio.run(run())


def test_registries_do_not_share_schemas() -> None:
    with run_schema_registry() as registry, run_schema_registry() as other:
        assert registry.register("a", '"string"') == 1
        assert other.subjects() == []
        assert registry.url != other.url


@dataclass
class Order:
    total: int


def test_payload_of_the_worker_uses_the_registry(
    sharegroup_schema_registry: SchemaRegistry,
    client: SchemaRegistryClient,
    reader: SchemaRegistryClient,
) -> None:
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]}'
    value = codec_for(Order, Registry(client, schema=schema)).encode(Order(3), "orders")
    assert value == b"\x00\x00\x00\x00\x01\x06"
    assert codec_for(Order, Registry(reader)).decode(value) == Order(3)
    assert sharegroup_schema_registry.subjects() == ["orders-value"]


def test_worker_reports_a_registry_that_has_gone() -> None:
    with run_schema_registry() as registry:
        registry.register("orders-value", '"int"')
        options = {"url": registry.url, "max.retries": 0}
    with SchemaRegistryClient(options) as client, pytest.raises(RegistryAway):
        codec_for(Order, Registry(client)).decode(b"\x00\x00\x00\x00\x01\x06")


def connections_to(registry: SchemaRegistry) -> int:
    """The open connections of this process whose other end is the registry."""
    port = int(registry.url.rpartition(":")[2])
    found = psutil.Process().net_connections("tcp4")
    return sum(1 for connection in found if connection.raddr and connection.raddr.port == port)


def test_worker_closes_its_registry_client_when_the_application_ends(
    sharegroup_schema_registry: SchemaRegistry,
) -> None:
    app = App("orders-service")

    @app.share_group(
        "billing", topics="orders", payload=Registry(sharegroup_schema_registry.url, format="json")
    )
    async def bill(order: Order) -> None: ...

    async def run() -> None:
        async with app.test() as t:
            sent = await t.send(bill, Order(3))
            await t.settle()
            assert sent.outcome == "accepted"
            assert connections_to(sharegroup_schema_registry) > 0
        assert connections_to(sharegroup_schema_registry) == 0

    asyncio.run(run())
    asyncio.run(run())  # The client is opened again.


def test_worker_leaves_the_registry_client_of_the_application_open(
    client: SchemaRegistryClient,
) -> None:
    app = App("orders-service")

    @app.share_group("billing", topics="orders", payload=Registry(client, format="json"))
    async def bill(order: Order) -> None: ...

    async def run() -> None:
        async with app.test() as t:
            await t.send(bill, Order(3))
            await t.settle()

    asyncio.run(run())
    assert client.get_subjects() == ["orders-value"]
