"""From a frame to a reply: what cannot be answered, and what nobody expected."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.handler_contract import ApiHandler, CloseConnection
from sharegroup.broker.load.late_requests import LateRequests
from sharegroup.broker.load.request_counters import RequestCounters
from sharegroup.broker.load.slices import Slices
from sharegroup.broker.load.waiting import WaitingRoom
from sharegroup.broker.server.dispatch import (
    UNEXPECTED_PAUSE_MS,
    Prepared,
    Reply,
    dispatch,
    writable,
)
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.testing.virtual_time import ManualClock
from sharegroup.wire.codec.apis import request_class, response_class
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_request
from sharegroup.wire.codec.headers import decode_response_header


def frame(key: int, version: int, **fields: Any) -> memoryview:
    message = request_class(key, version)(**fields)
    return memoryview(b"".join(encode_request(7, "test", message)))[4:]


def prepared(key: int, version: int, handler: ApiHandler | None = None) -> Prepared:
    """The entry of a type of request that need not wait for an import."""
    return {(key, version): (handler or handler_of(key), request_class(key, version))}


def answered(reply: Reply, key: int, version: int) -> Any:
    data = b"".join(reply)[4:]
    correlation_id, position = decode_response_header(data, 1)
    assert correlation_id == 7
    return decode(response_class(key, version), data, position)[0]


def test_unexpected_failure_is_logged_and_answered_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        clock = ManualClock()
        # The mistake: these parts lack the node that the handler asks for.
        parts: Any = SimpleNamespace(
            quotas=SimpleNamespace(is_on=False),
            waiting=WaitingRoom(clock),
            clock=clock,
            requests=RequestCounters(),
            slices=Slices(clock),
            late_requests=LateRequests(clock),
            prepared=prepared(60, 2),
        )
        describe = frame(
            60, 2, include_cluster_authorized_operations=False, include_fenced_brokers=False
        )
        reply = dispatch(parts, handler_of, describe, connection_id=1, peer=Peer("127.0.0.1"))
        assert isinstance(reply, asyncio.Future)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not reply.done()
        clock.advance(UNEXPECTED_PAUSE_MS / 1000)
        response = answered(await reply, 60, 2)
        assert response.error_code is ErrorCode.unknown_server_error
        assert (
            response.error_message == "AttributeError; the log of the broker contains the traceback"
        )

    asyncio.run(run())
    [record] = [record for record in caplog.records if "event=request_failed" in record.message]
    assert "api=describe_cluster version=2 client='test'" in record.message
    assert record.exc_info is not None


def test_failed_conversion_of_a_request_is_answered_with_invalid_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(request: Any, newest: type[Any]) -> Any:
        raise AttributeError("no such field")

    handler = replace(handler_of(60), from_older=broken)

    async def run() -> None:
        clock = ManualClock()
        parts: Any = SimpleNamespace(
            quotas=SimpleNamespace(is_on=False),
            waiting=WaitingRoom(clock),
            clock=clock,
            requests=RequestCounters(),
            slices=Slices(clock),
            late_requests=LateRequests(clock),
            prepared=prepared(60, 0, handler),
        )
        describe = frame(60, 0, include_cluster_authorized_operations=False)
        reply = dispatch(
            parts, lambda _: handler, describe, connection_id=1, peer=Peer("127.0.0.1")
        )
        assert isinstance(reply, asyncio.Future)
        await asyncio.sleep(0)
        clock.advance(UNEXPECTED_PAUSE_MS / 1000)
        assert answered(await reply, 60, 0).error_code is ErrorCode.invalid_request

    asyncio.run(run())
    [record] = [record for record in caplog.records if "event=request_failed" in record.message]
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x00\x03", "request header"),
        (b"\x27\x0f\x00\x00\x00\x00\x00\x07\xff\xff", "api key 9999 is not served"),
        (b"\x00\x4e\x00\x09\x00\x00\x00\x07\xff\xff\x00", "ShareFetch version 9 is not served"),
        (b"\x00\x03\x00\x0d\x00\x00\x00\x07\xff\xff\x00\xff", "Metadata version 13"),
    ],
)
def test_frame_without_an_answer_closes_the_connection(raw: bytes, reason: str) -> None:
    parts: Any = SimpleNamespace(
        requests=RequestCounters(),
        late_requests=LateRequests(ManualClock()),
        prepared=prepared(3, 13),
    )
    with pytest.raises(CloseConnection, match=reason):
        dispatch(parts, handler_of, memoryview(raw), connection_id=1, peer=Peer("127.0.0.1"))


@pytest.mark.parametrize(
    ("processor_seconds", "cause"),
    [
        (0.04, "processor_ms_max=40 client='test' peer=10.0.0.7 count=1 action='check why"),
        (0.02, "processor_ms_max=20 client='test' peer=10.0.0.7 count=1 action='the broker waited"),
        (0.09, "processor_ms_max=60 client"),
    ],
)
def test_request_that_holds_the_event_loop_is_counted_and_named(
    caplog: pytest.LogCaptureFixture, processor_seconds: float, cause: str
) -> None:
    now, processor_now = 100.0, 0.0

    def clock() -> float:
        nonlocal now
        now += 0.06  # Read twice for a request: it seems to have taken so long.
        return now

    def processor_clock() -> float:
        nonlocal processor_now
        processor_now += processor_seconds  # Read at the request's begin, and if it took long.
        return processor_now

    parts: Any = SimpleNamespace(
        quotas=SimpleNamespace(is_on=False),
        requests=RequestCounters(clock, processor_clock),
        late_requests=LateRequests(ManualClock()),
        prepared=prepared(18, 4),
        features=SimpleNamespace(check_served=lambda _: None, finalized={}, epoch=0),
        config=SimpleNamespace(server=SimpleNamespace(metrics_port=0)),
        serves_share_state=False,
        client_telemetry=SimpleNamespace(note_software=lambda *_: None),
    )
    hello = frame(18, 4, client_software_name="test", client_software_version="1")
    for _ in range(3):
        assert isinstance(
            dispatch(parts, handler_of, hello, connection_id=1, peer=Peer("10.0.0.7")), list
        )
    counters = parts.requests.of(18)
    assert counters.hold_count == 3
    assert counters.longest_hold_seconds == pytest.approx(0.06)
    [record] = [record for record in caplog.records if "event=event_loop_held" in record.message]
    assert f"api=api_versions version=4 ms=60 {cause}" in record.message


def test_batches_are_copied_unless_their_frame_is_a_copy_already() -> None:
    received, joined = b"batch", memoryview(bytearray(b"batch"))
    copy = writable(received)
    assert copy == b"batch"
    assert isinstance(copy, bytearray)
    assert isinstance(writable(memoryview(received)), bytearray)
    assert writable(joined) is joined
