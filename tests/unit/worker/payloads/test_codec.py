"""Payloads from bytes and back, for every kind of annotation."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import Payload, UnreadablePayload
from sharegroup.worker.payloads.codec import codec_for


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    article: str
    pieces: int = 1


@dataclass
class Order:
    total: Decimal
    lines: tuple[Line, ...] = ()
    at: dt.datetime | None = None
    parent: Order | None = None
    labels: dict[str, int] = field(default_factory=dict)


@dataclass
class Refund:
    amount: int


class Point(NamedTuple):
    x: int
    y: int


class Customer(TypedDict):
    name: str


class Sold(msgspec.Struct, tag="sold"):
    price: int


class Lost(msgspec.Struct, tag="lost"):
    reason: str


class Model(pydantic.BaseModel):
    total: int = pydantic.Field(ge=0)


@pydantic.dataclasses.dataclass
class Checked:
    total: int


@dataclass
class WithModel:
    model: Model


ID = UUID("12345678-1234-5678-1234-567812345678")
ORDER = Order(
    Decimal("1.50"),
    (Line("apple", 2),),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    Order(Decimal(2)),
    {"a": 1},
)
ORDER_JSON = (
    b'{"total":"1.50","lines":[{"article":"apple","pieces":2}],"at":"2026-01-01T00:00:00Z",'
    b'"parent":{"total":"2","lines":[],"at":null,"parent":null,"labels":{}},"labels":{"a":1}}'
)


@pytest.mark.parametrize(
    ("annotation", "value", "payload"),
    [
        (bytes, b"\x00\xff", b"\x00\xff"),
        (bytes, b"", b""),
        (str, "gr\u00fcn".encode(), "grün"),
        (Any, b'{"a":[1,2.5,null,true]}', {"a": [1, 2.5, None, True]}),
        (object, b"[1]", [1]),
        (dict, b'{"a":1}', {"a": 1}),
        (dict[str, int], b'{"a":1}', {"a": 1}),
        (int, b"7", 7),
        (tuple[int, ...], b"[1,2]", (1, 2)),
        (set[int], b"[1]", {1}),
        (Order, ORDER_JSON, ORDER),
        (Customer, b'{"name":"Ada"}', {"name": "Ada"}),
        (Point, b"[1,2]", Point(1, 2)),
        (Sold | Lost, b'{"type":"lost","reason":"rain"}', Lost("rain")),
        (Colour, b'"red"', Colour.RED),
        (Literal["a", "b"], b'"b"', "b"),
        (UUID, b'"12345678-1234-5678-1234-567812345678"', ID),
        (Annotated[int, msgspec.Meta(ge=0)], b"3", 3),
        (Model, b'{"total":3}', Model(total=3)),
        (tuple[Model, ...], b'[{"total":3}]', (Model(total=3),)),
        (Checked, b'{"total":3}', Checked(total=3)),
        (WithModel, b'{"model":{"total":3}}', WithModel(Model(total=3))),
        (Line | Refund, b'{"amount":3}', Refund(3)),
    ],
)
def test_payload_is_read_and_written(annotation: Any, value: bytes, payload: Any) -> None:
    codec = codec_for(annotation)
    assert codec.decode(value) == payload
    assert type(codec.decode(value)) is type(payload)
    assert codec.encode(payload, "orders") == value
    assert not codec.may_block


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, b"\xff"),
        (Any, b"{"),
        (Any, b""),
        (Any, b"\xff\xfe"),
        (Any, b"[" * 100_000),
        (dict, b"[]"),
        (dict, b"null"),
        (int, b'"7"'),
        (Order, b'{"lines":[]}'),
        (Order, b'{"total":"1","lines":[{"article":3}]}'),
        (Customer, b"{}"),
        (Sold | Lost, b'{"type":"eaten"}'),
        (Annotated[int, msgspec.Meta(ge=0)], b"-3"),
        (Model, b'{"total":-3}'),
        (Model, b"nonsense"),
        (WithModel, b'{"model":{}}'),
    ],
)
def test_bytes_of_another_type_are_unreadable(annotation: Any, value: bytes) -> None:
    with pytest.raises(
        UnreadablePayload, match=f"got {len(value)} bytes that cannot be decoded"
    ) as raised:
        codec_for(annotation).decode(value)
    assert isinstance(raised.value.__cause__, Exception)


def test_unreadable_payload_names_the_expected_type_and_the_place() -> None:
    with pytest.raises(UnreadablePayload) as raised:
        codec_for(Order).decode(b'{"total":"1","lines":[{"article":3}]}')
    assert str(raised.value) == (
        "expected Order, got 37 bytes that cannot be decoded: Expected `str`, got `int` - "
        "at `$.lines[0].article`"
    )


@pytest.mark.parametrize("annotation", [Any, object, None, Order | None, bytes | None, str | None])
def test_tombstone_is_none_where_the_annotation_allows_it(annotation: Any) -> None:
    codec = codec_for(annotation)
    assert codec.decode(None) is None
    assert codec.encode(None, "orders") is None


@pytest.mark.parametrize("annotation", [Order, bytes, str, dict, Model, Sold | Lost])
def test_tombstone_is_unreadable_elsewhere(annotation: Any) -> None:
    with pytest.raises(UnreadablePayload, match="but the record has no value"):
        codec_for(annotation).decode(None)


def test_optional_annotation_decodes_like_its_type() -> None:
    assert codec_for(bytes | None).decode(b"{}") == b"{}"
    assert codec_for(str | None).decode(b"{}") == "{}"
    assert codec_for(Line | None).decode(b'{"article":"a"}') == Line("a")
    assert codec_for(Sold | Lost | None).decode(b'{"type":"sold","price":1}') == Sold(1)
    assert codec_for(Model | None).decode(b'{"total":1}') == Model(total=1)


@pytest.mark.parametrize(
    ("annotation", "payload", "message"),
    [
        (bytes, "text", "expected bytes, got str"),
        (str, b"bytes", "expected str, got bytes"),
        (Order, {"total": 1}, "expected Order, got dict"),
        (Sold, Lost("rain"), "expected Sold, got Lost"),
        (Model, {"total": 1}, "expected Model, got dict"),
        (Order, None, "expected Order, got NoneType"),
    ],
)
def test_payload_of_another_type_than_the_handlers_is_not_sent(
    annotation: Any, payload: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        codec_for(annotation).encode(payload, "orders")


class Unknown:
    pass


@dataclass
class WithUnknown:
    unknown: Unknown


@dataclass
class Unresolved:
    field: Missing  # noqa: F821  It is missing.


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Unknown, "msgspec does not support the type Unknown"),
        (WithUnknown, "msgspec does not support the type Unknown"),
        (Unresolved, "name 'Missing' is not defined"),
    ],
)
def test_unsupported_annotation_is_refused_at_the_declaration(
    annotation: Any, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"{message}.*expected bytes, str, dict, a dataclass"):
        codec_for(annotation)


class TestPayload:
    """Functions of the application's own."""

    def test_custom_functions_decode_and_encode(self) -> None:
        codec = codec_for(int, Payload(decode=int, encode=lambda number: b"%d" % number))
        assert codec.decode(b"12") == 12
        assert codec.encode(12, "orders") == b"12"

    def test_exception_of_a_custom_decoder_means_unreadable(self) -> None:
        codec = codec_for(int, Payload(decode=int))
        with pytest.raises(
            UnreadablePayload, match="expected int, got 3 bytes that cannot be decoded: inv"
        ):
            codec.decode(b"abc")

    @pytest.mark.parametrize("error", [TimeoutError("slow"), ConnectionResetError("gone")])
    def test_trouble_with_the_world_is_not_about_the_bytes(self, error: OSError) -> None:
        def decode(value: bytes) -> int:
            raise error

        with pytest.raises(OSError) as raised:  # noqa: PT011  The very one.
            codec_for(int, Payload(decode)).decode(b"1")
        assert raised.value is error

    def test_without_encode_nothing_is_sent(self) -> None:
        with pytest.raises(TypeError, match="its Payload has no `encode`"):
            codec_for(int, Payload(decode=int)).encode(3, "orders")

    def test_tombstones_follow_the_annotation(self) -> None:
        assert codec_for(int | None, Payload(decode=int)).decode(None) is None


class TestWithoutMsgspec:
    """Plain JSON needs nothing but the standard library."""

    @pytest.fixture(autouse=True)
    def _without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "msgspec", None)

    def test_plain_values_are_read_and_written(self) -> None:
        for annotation in (Any, dict):
            codec = codec_for(annotation)
            assert codec.decode(b'{"a":"\xc3\xbc"}') == {"a": "ü"}
            assert codec.encode({"a": "ü"}, "orders") == b'{"a":"\xc3\xbc"}'

    def test_other_bytes_are_unreadable(self) -> None:
        for annotation, value in ((Any, b"{"), (dict, b"[]")):
            with pytest.raises(UnreadablePayload):
                codec_for(annotation).decode(value)

    def test_missing_library_is_named_in_the_error(self) -> None:
        with pytest.raises(InvalidConfig, match=r"Order.* needs msgspec, pip install '.\[worker"):
            codec_for(Order)


def test_without_pydantic_its_kind_of_types_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(InvalidConfig, match="pydantic may support it, but is not installed"):
        codec_for(Line | Refund)
    assert codec_for(Line).decode(b'{"article":"a"}') == Line("a")
