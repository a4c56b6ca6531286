"""Instances of any message class, made from its metadata by Hypothesis or by a seed."""

from __future__ import annotations

import io
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from sharegroup.wire.codec.apis import APIS, request_class, response_class
from sharegroup.wire.codec.schema import MessageField, message_fields

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = ("", "a", "flights", "grün ✈", "x" * 126, "y" * 127, "z" * 300)


def every_class() -> list[type[Any]]:
    """Each request and response class of each version that is served."""
    return [
        message_class(api.key, version)
        for api in APIS.values()
        for version in range(api.oldest, api.newest + 1)
        for message_class in (request_class, response_class)
    ]


def class_id(cls: type[Any]) -> str:
    return f"{cls.__name__}-v{cls.__version__}"


def by_kio(message: Any) -> bytes:
    """The message as kio's writer puts it."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def random_message(cls: type[Any], dice: random.Random) -> Any:
    return cls(**{field.name: _random_value(field, dice) for field in message_fields(cls)})


def _random_value(field: MessageField, dice: random.Random) -> Any:
    if field.tag is not None and dice.random() < 0.4:
        return field.default
    # kio cannot write null into ShareFetch's records, and null tags do not exist on the wire.
    if field.nullable and field.tag is None and dice.random() < 0.2 and not kio_refuses_null(field):
        return None
    if field.is_array:
        return tuple(_random_element(field, dice) for _ in range(dice.choice((0, 1, 2, 3))))
    return _random_element(field, dice)


def _random_element(field: MessageField, dice: random.Random) -> Any:
    kind = field.kafka_type
    if field.entity is not None:
        return random_message(field.entity, dice)
    if kind in BITS:
        half = 2 ** (BITS[kind] - 1)
        return dice.choice((0, 1, -1, half - 1, -half, dice.randrange(-half, half)))
    match kind:
        case "uint16":
            return dice.choice((0, 1, 2**16 - 1))
        case "bool":
            return dice.random() < 0.5
        case "string":
            return dice.choice(TEXTS)
        case "bytes" | "records":
            return dice.randbytes(dice.choice((0, 1, 126, 127, 128, 20_000)))
        case "uuid":
            return (
                None
                if field.nullable and dice.random() < 0.2
                else UUID(int=dice.randrange(1, 2**128))
            )
        case "error_code":
            return dice.choice(list(ErrorCode))
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=dice.randrange(-(2**31), 2**31))
        case "float64":
            return dice.choice([0.0, -1.5, dice.uniform(-1e300, 1e300), float("inf")])
        case "datetime_i64":
            return EPOCH + timedelta(milliseconds=dice.randrange(0, 2**41))
    raise AssertionError(f"no values for {field}")


def kio_refuses_null(field: MessageField) -> bool:
    return field.kafka_type == "records"


def messages(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Valid messages of a class that shrink field by field."""
    return st.builds(cls, **{field.name: _values(field) for field in message_fields(cls)})


def _values(field: MessageField) -> st.SearchStrategy[Any]:
    values = _elements(field)
    if field.is_array:
        values = st.lists(values, max_size=3).map(tuple)
    if field.nullable and field.tag is None and not kio_refuses_null(field):
        values = st.none() | values
    return values if field.tag is None else st.just(field.default) | values


def _elements(field: MessageField) -> st.SearchStrategy[Any]:
    kind = field.kafka_type
    if field.entity is not None:
        return messages(field.entity)
    if kind in BITS:
        half = 2 ** (BITS[kind] - 1)
        return st.integers(-half, half - 1)
    milliseconds = st.integers(-(2**31), 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms))
    return {
        "bool": st.booleans(),
        "uint16": st.integers(0, 2**16 - 1),
        "string": st.text(max_size=200),
        "bytes": st.binary(max_size=300),
        "records": st.binary(max_size=300),
        "float64": st.floats(allow_nan=False),
        "uuid": st.none() | st.uuids().filter(lambda value: value.int != 0),
        "error_code": st.sampled_from(ErrorCode),
        "timedelta_i32": milliseconds,
        "timedelta_i64": milliseconds,
        "datetime_i64": st.integers(0, 2**41).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
    }[str(kind)]
