"""Payloads with a schema registry: Confluent's client, on its registry in memory."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from referencing import Resource
from referencing.jsonschema import DRAFT7

from sharegroup.errors import InvalidConfig
from sharegroup.worker import Registry, SchemaFormat, UnreadablePayload, share_group
from sharegroup.worker.payloads.bounded_validator import BoundedValidator
from sharegroup.worker.payloads.codec import codec_for
from sharegroup.worker.payloads.registry import RegistryAway, _library

with warnings.catch_warnings(record=True):  # See `registry`.
    import httpx
    from confluent_kafka.schema_registry import (
        Schema,
        SchemaReference,
        SchemaRegistryClient,
        _sync,
    )
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    CLIENT = SchemaRegistryClient.new_client({"url": "mock://orders"})
MemoryClient: Any = type(CLIENT)
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "total", "type": "int"},
            {"name": "customer", "type": ["null", "string"], "default": None},
        ],
    }
)


@dataclass
class Order:
    total: int
    customer: str | None = None


@dataclass
class Total:
    total: int


class Model(pydantic.BaseModel):
    total: int


def avro(annotation: Any = Order, schema: str | None = SCHEMA) -> Any:
    return codec_for(annotation, Registry(CLIENT, schema=schema))


def test_avro_is_written_with_its_schemas_number_and_read_again() -> None:
    codec = avro()
    value = codec.encode(Order(3, "Ada"), "orders")
    assert value[0] == 0
    assert value[5:] == b"\x06\x02\x06Ada"
    assert codec.decode(value) == Order(3, "Ada")


def test_schema_of_the_record_is_that_of_its_writer() -> None:
    value = avro().encode(Order(3, "Ada"), "orders")
    assert avro(Total, None).decode(value) == Total(3)


def test_json_schema_is_made_of_the_annotation() -> None:
    for annotation, payload in ((Order, Order(3)), (Model, Model(total=3))):
        codec = codec_for(annotation, Registry(CLIENT, format="json"))
        value = codec.encode(payload, "orders-" + annotation.__name__)
        assert value[0] == 0
        assert json.loads(value[5:])["total"] == 3
        assert codec.decode(value) == payload


@pytest.mark.parametrize("value", [b"", b"plain", b"\x00\x00\x00", b"\x01\x00\x00\x00\x01\x06"])
def test_bytes_without_a_schema_are_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadablePayload):
        avro().decode(value)


def test_values_of_another_schema_are_unreadable() -> None:
    text = json.dumps(
        {"type": "record", "name": "Note", "fields": [{"name": "t", "type": "string"}]}
    )

    @dataclass
    class Note:
        t: str

    value = codec_for(Note, Registry(CLIENT, schema=text)).encode(Note("hello"), "notes")
    with pytest.raises(UnreadablePayload, match="expected Order"):
        avro().decode(value)


def test_reading_may_wait_for_the_registry() -> None:
    assert avro().may_block


def test_tombstones_need_no_schema() -> None:
    assert avro(Order | None).decode(None) is None
    assert avro(Order | None).encode(None, "orders") is None


def test_handler_accepts_a_registry_payload() -> None:
    async def bill(order: Order) -> None: ...

    routed = share_group(
        "billing", topics="orders", handler=bill, payload=Registry(CLIENT, schema=SCHEMA)
    )
    assert routed.route.codec.may_block


def test_address_makes_a_client() -> None:
    codec = codec_for(Order, Registry("mock://orders", schema=SCHEMA))
    assert codec.decode(codec.encode(Order(3), "orders")) == Order(3)


def test_format_must_be_known() -> None:
    assert Registry(CLIENT, format="json").format is SchemaFormat.JSON
    assert Registry(CLIENT, format=SchemaFormat.JSON) == Registry(CLIENT, format="json")
    assert Registry(CLIENT).format is SchemaFormat.AVRO
    with pytest.raises(InvalidConfig, match="format='xml'; expected 'avro' or 'json'"):
        Registry(CLIENT, format="xml")


class FailingClient(MemoryClient):
    """The client of a registry that fails with this error whenever a schema is asked for."""

    def __init__(self, error: Exception) -> None:
        super().__init__({"url": "mock://failing"})
        self.error = error

    def get_schema(self, *_: object, **__: object) -> Any:
        raise self.error


def decode_with(error: Exception) -> None:
    codec = codec_for(Order, Registry(FailingClient(error), schema=SCHEMA))
    codec.decode(b"\x00\x00\x00\x00\x01\x06")


@pytest.mark.parametrize(
    "error",
    [
        SchemaRegistryError(503, 50301, "away"),
        SchemaRegistryError(500, 50001, "broken"),
        SchemaRegistryError(401, 401, "the password has changed"),
        SchemaRegistryError(403, 40301, "not yet allowed"),
        SchemaRegistryError(408, 408, "too slow"),
        SchemaRegistryError(429, 42901, "too many requests"),
        httpx.ConnectError("no"),
        ConnectionRefusedError("no"),
    ],
)
def test_registry_that_is_away_is_no_fault_of_the_bytes(error: Exception) -> None:
    with pytest.raises(RegistryAway, match="schema registry: "):
        decode_with(error)


def test_unknown_schema_makes_the_payload_unreadable() -> None:
    with pytest.raises(UnreadablePayload, match="Schema not found"):
        decode_with(SchemaRegistryError(404, 40403, "Schema not found"))


def test_registry_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'confluent-kafka\[avro"):
        avro()


@pytest.mark.parametrize("name", ["http://schemas.example/order.json", "file:///etc/passwd"])
def test_a_json_schema_fetches_nothing_from_elsewhere(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch(uri: str) -> Any:
        fetched.append(uri)
        return Resource.from_contents({"type": "object"}, default_specification=DRAFT7)

    monkeypatch.setattr(_sync.json_schema, "_retrieve_via_httpx", fetch)
    text = json.dumps({"properties": {"total": {"$ref": name}}})
    number = CLIENT.register_schema(f"orders-{name}", Schema(text, "JSON"))
    codec = codec_for(Order, Registry(CLIENT, format="json"))
    with pytest.raises(UnreadablePayload, match=re.escape(name)):
        codec.decode(b"\0" + number.to_bytes(4, "big") + b'{"total": 3}')
    assert fetched == []


def test_a_json_schema_may_refer_to_one_in_the_registry() -> None:
    CLIENT.register_schema("total", Schema('{"type": "integer", "maximum": 5}', "JSON"))
    reference = SchemaReference("http://schemas.example/total.json", "total", 1)
    text = json.dumps({"properties": {"total": {"$ref": reference.name}}})
    number = CLIENT.register_schema("referring", Schema(text, "JSON", [reference]))
    codec = codec_for(Order, Registry(CLIENT, format="json"))
    prefix = b"\0" + number.to_bytes(4, "big")
    assert codec.decode(prefix + b'{"total": 3}') == Order(3)
    with pytest.raises(UnreadablePayload, match="maximum"):
        codec.decode(prefix + b'{"total": 9}')


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"customer": {"pattern": "(a+)+$"}}},
        {"patternProperties": {"(a+)+$": {}}, "additionalProperties": False},
        {"$ref": "#/default", "default": {"properties": {"customer": {"pattern": "(a+)+$"}}}},
        {"properties": {"customer": {"$schema": DRAFT_7, "pattern": "(a+)+$"}}},
        {"propertyNames": {"pattern": "(a+)+$"}},
        {"properties": {"customer": {"$ref": "http://schemas.example/slow.json"}}},
    ],
)
def test_no_regular_expression_of_a_senders_schema_is_evaluated(schema: dict[str, Any]) -> None:
    """Each of these takes years, while no other thread runs."""
    slow = Schema('{"pattern": "(a+)+$"}', "JSON")
    CLIENT.register_schema("slow", slow)
    references = [SchemaReference("http://schemas.example/slow.json", "slow", 1)]
    text = json.dumps({"maxProperties": 2, **schema})
    number = CLIENT.register_schema("hostile", Schema(text, "JSON", references))
    codec = codec_for(dict[str, Any], Registry(CLIENT, format="json"))
    prefix, long = b"\0" + number.to_bytes(4, "big"), "a" * 50 + "!"
    payload = {"total": 3, "customer": long}
    assert codec.decode(prefix + json.dumps(payload).encode()) == payload
    with pytest.raises(UnreadablePayload, match="too many properties"):
        codec.decode(prefix + json.dumps({**payload, long: long}).encode())


def test_validation_by_a_senders_schema_is_bounded() -> None:
    number = CLIENT.register_schema("bounded", Schema('{"maxProperties": 1}', "JSON"))
    library = _library()
    reader = library.serializers["json"][0](CLIENT)
    assert reader(b"\0" + number.to_bytes(4, "big") + b"{}", library.context("")) == {}
    assert [type(made) for made in reader._validators.values()] == [BoundedValidator]
