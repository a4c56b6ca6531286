"""What a sender accepts, the handler of the same type reads as it was sent."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from sharegroup.worker import App, Registry
from sharegroup.worker.payloads import json_values
from sharegroup.worker.payloads.codec import codec_for


class Colour(Enum):
    RED = "red"
    NONE = None


@dataclass
class Order:
    total: float | None = None
    lines: list[float | None] = field(default_factory=list)
    parent: Order | None = None


@dataclass
class Special(Order):
    gift: str = ""


@dataclass
class Everything:
    number: int
    share: float
    name: str
    raw: bytes
    price: Decimal
    id: UUID
    at: dt.datetime
    day: dt.date
    time: dt.time
    wait: dt.timedelta
    colours: set[Colour]
    by_number: dict[int, str]
    by_float: dict[float, int]
    pair: tuple[int, str]
    either: int | str | None
    any: Any = None


class Struct(msgspec.Struct):
    total: float | None
    places: frozenset[bytes] = frozenset()


class Model(pydantic.BaseModel):
    total: float | None
    raw: bytes = b""
    at: dt.datetime | None = None


class Aliased(pydantic.BaseModel):
    total: float = pydantic.Field(alias="sum")


class Secretive(pydantic.BaseModel):
    total: float
    password: str = pydantic.Field(default="", exclude=True)


class Row(TypedDict):
    total: float | None


class WithoutEquality(msgspec.Struct, eq=False):
    total: float | None


@dataclass
class Counted:
    name: str
    length: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.length = len(self.name)


NAIVE = dt.datetime.fromisoformat("2026-01-02")
LOSSY = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("number", LOSSY)
@pytest.mark.parametrize(
    ("annotation", "payload_of"),
    [
        pytest.param(Order, lambda number: Order(number), id="field"),
        pytest.param(Order, lambda number: Order(1.0, [2.0, number]), id="in a list"),
        pytest.param(Order, lambda number: Order(1.0, [], Order(number)), id="nested"),
        pytest.param(dict, lambda number: {"a": [{"b": number}]}, id="in a dict"),
        pytest.param(Any, lambda number: number, id="alone"),
        pytest.param(float | None, lambda number: number, id="of None or a number"),
        pytest.param(Struct, lambda number: Struct(number), id="struct"),
        pytest.param(WithoutEquality, lambda number: WithoutEquality(number), id="no equality"),
        pytest.param(Model, lambda number: Model(total=number), id="model"),
        pytest.param(list[Model], lambda number: [Model(total=number)], id="list of models"),
        pytest.param(Row, lambda number: {"total": number}, id="typed dict"),
    ],
)
def test_number_that_json_lacks_is_an_error_of_the_sender(
    annotation: Any, payload_of: Any, number: float
) -> None:
    with pytest.raises(ValueError, match="payload"):
        codec_for(annotation).encode(payload_of(number), "orders")


@pytest.mark.parametrize(
    ("annotation", "payload", "place"),
    [
        (dict, {"raw": b"x"}, r"payload\['raw'\]: b'x' \(bytes\) would be read as 'eA=='"),
        (dict, {"some": {1}}, r"payload\['some'\]: \{1\} \(set\) would be read as \[1\]"),
        (dict, {1: "one"}, r"payload\[1\]: 'one' \(str\) would be read as nothing"),
        (dict, {"at": NAIVE}, r"payload\['at'\]: datetime"),
        (Any, [Decimal("1.5")], r"payload\[0\]: Decimal\('1.5'\)"),
        (Any, [UUID(int=7)], r"payload\[0\]: UUID"),
        (dict, {"c": Colour.RED}, r"payload\['c'\]: <Colour.RED: 'red'>"),
        (Order, Special(1.0, gift="bow"), r"payload: Special.* would be read as Order"),
        (Order, Order("3"), "its handler could not read it"),  # type: ignore[arg-type]
        (Aliased, Aliased(sum=1.0), "its handler could not read it"),
        (Annotated[dt.datetime, msgspec.Meta(tz=True)], NAIVE, "timezone"),
        (Row, {"total": 1.0, "more": 2}, r"payload\['more'\]: 2 \(int\) would be read as nothing"),
    ],
)
def test_payload_that_would_be_read_otherwise_is_refused_with_the_place(
    annotation: Any, payload: Any, place: str
) -> None:
    with pytest.raises(ValueError, match=place):
        codec_for(annotation).encode(payload, "orders")


@pytest.mark.parametrize(
    ("annotation", "payload"),
    [
        (dict, {"pair": (1, (2, 3))}),
        (WithoutEquality, WithoutEquality(1.5)),
        (Counted, Counted("four")),
        (Secretive, Secretive(total=1.0, password="x")),
        (Decimal, Decimal("NaN")),
    ],
)
def test_payload_that_only_looks_different_is_sent(annotation: Any, payload: Any) -> None:
    codec = codec_for(annotation)
    codec.decode(codec.encode(payload, "orders"))


def test_json_of_the_standard_library_refuses_it_too() -> None:
    read, write = json_values._untyped(dict)
    assert read(write({"a": [1.5]}, "orders")) == {"a": [1.5]}
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        write({"a": [math.nan]}, "orders")


def test_json_with_a_schema_registry_refuses_it_too() -> None:
    codec = codec_for(Order, Registry("mock://read-back", format="json"))
    assert codec.decode(codec.encode(Order(1.5), "orders")) == Order(1.5)
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.encode(Order(math.nan), "orders")


def test_send_raises_and_writes_nothing() -> None:
    async def test() -> None:
        app = App("senders")

        @app.share_group("billing", topics="orders")
        async def bill(order: Order) -> None: ...

        async with app.test() as t:
            with pytest.raises(ValueError, match=r"payload.total: nan"):
                await bill.send(Order(math.nan))
            with pytest.raises(ValueError, match=r"payload.total: nan"):
                await bill.send(Order(math.nan), delay="1h")
            assert t.in_topic("orders") == []

    asyncio.run(test())


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary(max_size=4)
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.sampled_from(Colour)
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(st.integers() | st.text(), max_size=3)
        | st.dictionaries(st.text() | st.integers() | st.none() | st.floats(), inner, max_size=3)
    ),
    max_leaves=6,
)


def lists(payload: Any) -> Any:
    """The payload with lists in place of tuples, because JSON has one kind of sequence."""
    if isinstance(payload, list | tuple):
        return [lists(inner) for inner in payload]
    if isinstance(payload, dict):
        return {key: lists(inner) for key, inner in payload.items()}
    if isinstance(payload, Everything):  # Its other fields have types, and so their tuples.
        return replace(payload, any=lists(payload.any))
    return payload


def read_if_sent(annotation: Any, payload: Any) -> None:
    codec = codec_for(annotation)
    try:
        value = codec.encode(payload, "orders")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return
    assert lists(codec.decode(value)) == lists(payload)
    if value is not None and annotation not in (str, bytes):
        json.loads(value, parse_constant=pytest.fail)


@given(payload=anything)
@pytest.mark.parametrize("annotation", [Any, dict])
def test_whatever_is_sent_without_types_is_read_equal(annotation: Any, payload: Any) -> None:
    read_if_sent(annotation, {"a": payload} if annotation is dict else payload)


@given(data=st.data())
@pytest.mark.parametrize(
    "annotation",
    [
        Order, Struct, Model, Row, list[float], dict[str, float], float | None, int, str, bytes,
        set[bytes], dict[int, bytes], tuple[dt.datetime, dt.time], dt.timedelta,
    ],
    ids=str,
)  # fmt: skip
def test_whatever_is_sent_of_a_type_is_read_equal(annotation: Any, data: st.DataObject) -> None:
    read_if_sent(annotation, data.draw(st.from_type(annotation)))


@given(
    payload=st.builds(
        Everything,
        price=st.decimals(allow_nan=False),
        at=st.datetimes(timezones=st.none() | st.timezones()),
        time=st.times(timezones=st.none() | st.just(dt.UTC)),
        any=anything,
    )
)
def test_whatever_is_sent_of_a_dataclass_is_read_equal(payload: Everything) -> None:
    read_if_sent(Everything, payload)
