"""Every version of every request with empty arrays, nulls and long texts, through `dispatch`.

Each one is answered, or its connection is closed for a reason; no handler and no conversion
fails with an exception that the log has to explain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.handler_contract import CloseConnection
from sharegroup.broker.server.dispatch import dispatch
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.wire.codec.apis import APIS, request_class, response_class, response_header_version
from sharegroup.wire.codec.convert import empty
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import EncodeError, encode_request
from sharegroup.wire.codec.headers import decode_response_header
from sharegroup.wire.codec.schema import MessageField, message_fields
from tests.faults.in_process import Broker
from tests.faults.tokens import full_message
from tests.support.limits import HANGING_SECONDS

LONG_TEXT = "ü" * 16_383
"""32,766 bytes: as long as a string may be in Kafka's older versions."""

TURNS_MAX = 200


def with_texts(message: Any, text: str | None) -> Any:
    """The message with ``text`` in all strings; None stands in those that may be null."""
    changed: dict[str, Any] = {}
    for field in message_fields(type(message)):
        value = getattr(message, field.name)
        if field.entity is not None:
            if field.is_array:
                changed[field.name] = tuple(with_texts(element, text) for element in value or ())
            elif value is not None:
                changed[field.name] = with_texts(value, text)
        elif field.kafka_type == "string":
            changed[field.name] = _text(field, text)
    return replace(message, **changed)


def _text(field: MessageField, text: str | None) -> Any:
    if field.is_array:
        return () if text is None else (text,)
    return None if text is None and field.nullable else text or ""


def nulls(cls: type[Any]) -> Any:
    """An instance with null in every field that may be null."""
    message = empty(cls)
    absent = {field.name: None for field in message_fields(cls) if field.nullable}
    return replace(message, **absent)


def emptied(message: Any) -> Iterator[Any]:
    """The message as often as it has arrays, each time with another one of them empty."""
    for field in message_fields(type(message)):
        value = getattr(message, field.name)
        if field.is_array:
            yield replace(message, **{field.name: ()})
        if field.entity is not None and value:
            inner = value[0] if field.is_array else value
            for changed in emptied(inner):
                yield replace(message, **{field.name: (changed,) if field.is_array else changed})


def requests_of(key: int, version: int) -> Iterator[Any]:
    cls = request_class(key, version)
    full = full_message(cls)
    yield empty(cls)
    yield nulls(cls)
    yield full
    yield from emptied(full)
    yield with_texts(full, None)
    yield with_texts(full, LONG_TEXT)


async def answer(broker: Broker, message: Any, connection_id: int) -> Any:
    """The answer; None if the connection was closed, or there is none."""
    try:
        frame = b"".join(encode_request(1, "test", message))[4:]
    except EncodeError:
        return None  # A record batch that may not be null: no client can send this.
    parts = broker.running.parts
    try:
        reply = dispatch(
            parts,
            handler_of,
            memoryview(frame),
            connection_id=connection_id,
            peer=Peer("127.0.0.1"),
        )
        if isinstance(reply, asyncio.Future):
            async with asyncio.timeout(HANGING_SECONDS):
                while not reply.done():
                    broker.clock.advance(60)
                    await asyncio.sleep(0)
            reply = await reply
    except CloseConnection:
        return None
    data = b"".join(reply)[4:]
    if not data:
        return None
    key, version = message.__api_key__, message.__version__
    _, position = decode_response_header(data, response_header_version(key, version))
    return decode(response_class(key, version), data, position)[0]


@pytest.mark.parametrize("key", APIS, ids=[api.name for api in APIS.values()])
def test_every_version_is_answered_or_its_connection_is_closed(
    key: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path), sharegroup_share_state_apis_enable="true")
        try:
            api = APIS[key]
            for version in range(api.oldest, api.newest + 1):
                for number, message in enumerate(requests_of(key, version)):
                    await answer(broker, message, connection_id=number)
                    failed = [
                        record for record in caplog.records if record.levelno >= logging.ERROR
                    ]
                    assert not failed, (version, message, failed[0].getMessage())
        finally:
            await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("version", [4, 5, 6])
def test_find_coordinator_for_no_keys_finds_none(version: int, tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path))
        try:
            found = await answer(broker, empty(request_class(10, version)), connection_id=1)
            assert found.coordinators == ()
        finally:
            await broker.stop()

    asyncio.run(main())
