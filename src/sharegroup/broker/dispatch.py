"""From a frame to a reply: header, version, decoding, the handler, the error code.

The table below is the list of APIs; a handler's module is imported when its API is first
used.  A handler is called with the newest version of its request and answers with the newest
version of its response; conversion to what the client speaks happens here, by field name.

The synchronous part of a handler runs at once, in the order in which the requests came, so
what it decides is decided before the next request is looked at.  Only the reply may wait: a
handler returns its response, or an awaitable of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from sharegroup.broker.parts import Parts
from sharegroup.broker.request_counters import ApiCounters
from sharegroup.errors import KafkaError, UnknownServerError, UnsupportedVersion
from sharegroup.wire import decoder, encoder
from sharegroup.wire.apis import APIS, newest_request_class, request_class, response_class
from sharegroup.wire.batches import Writable
from sharegroup.wire.convert import downgrade, upgrade
from sharegroup.wire.decoder import Buffer, DecodeError, decode
from sharegroup.wire.encoder import Chunk, encode_response_chunks
from sharegroup.wire.headers import RequestHeader, decode_request_header

log = logging.getLogger(__name__)

API_VERSIONS = 18

UNEXPECTED_PAUSE_MS = 500

ELEMENTS_MAX = 30_000
"""Array elements of one request.  A partition asked for costs 25 us and 2 KB until it is answered,
and nobody else is served meanwhile; all the partitions that a broker may have fit in."""

MODULES = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    32: "describe_configs",
    33: "alter_configs",
    35: "describe_log_dirs",
    37: "create_partitions",
    42: "delete_groups",
    44: "incremental_alter_configs",
    47: "offset_delete",
    57: "update_features",
    60: "describe_cluster",
    74: "list_config_resources",
    76: "share_group_heartbeat",
    77: "share_group_describe",
    78: "share_fetch",
    79: "share_acknowledge",
    83: "initialize_share_group_state",
    84: "read_share_group_state",
    85: "write_share_group_state",
    86: "delete_share_group_state",
    87: "read_share_group_state_summary",
    90: "describe_share_group_offsets",
    91: "alter_share_group_offsets",
    92: "delete_share_group_offsets",
}
"""API key to the module under `sharegroup.broker.handlers`."""


class CloseConnection(Exception):
    """The peer sent what cannot be answered; its text says what."""


class Context(NamedTuple):
    """What a handler knows about the request besides its message."""

    connection_id: int
    peer_host: str
    client_id: str
    api_version: int
    correlation_id: int


class Encoded(NamedTuple):
    """A response that its handler has put into bytes itself; hot paths do."""

    chunks: list[Chunk]


NO_REPLY = Encoded([])
"""The response of a request that asked for none (Produce with acks=0)."""

Reply = list[Chunk]
Handle = Callable[[Parts, Context, Any], Any]
Refuse = Callable[[Any, KafkaError], Any]


class _Handler(NamedTuple):
    """An API's functions; the last two are its own only where fields were renamed.

    A ``native`` one takes the request, and answers, in the version that the client speaks.
    """

    handle: Handle
    refuse: Refuse
    native: bool
    from_older: Callable[[Any, type[Any]], Any]
    to_older: Callable[[Any, type[Any]], Any]


class _Call(NamedTuple):
    """One request on its way to a reply."""

    parts: Parts
    handler: _Handler
    header: RequestHeader
    request: Any
    counters: ApiCounters
    began: float


def dispatch(
    parts: Parts, frame: memoryview, *, connection_id: int, peer_host: str
) -> Reply | asyncio.Future[Reply]:
    """Start on one request; the reply's chunks, now or later.  [] means: no reply.

    Raises CloseConnection when the protocol has no answer for such a frame.
    """
    began = parts.requests.clock()
    try:
        header = decode_request_header(frame)
    except DecodeError as error:
        raise CloseConnection(f"request header: {error}") from error
    api = APIS.get(header.api_key)
    if api is None or (api.between_brokers and not parts.config.server.share_state_apis):
        raise CloseConnection(f"api key {header.api_key} is not served")
    if not api.oldest <= header.api_version <= api.newest:
        if header.api_key == API_VERSIONS:
            return _wrong_version(header)
        raise CloseConnection(
            f"{api.name} version {header.api_version} is not served, "
            f"only {api.oldest} to {api.newest}"
        )
    try:
        request, _ = decode(
            request_class(header.api_key, header.api_version),
            frame,
            header.body_position,
            records=writable,
            elements_max=ELEMENTS_MAX,
        )
    except DecodeError as error:
        raise CloseConnection(f"{api.name} version {header.api_version}: {error}") from error
    context = Context(
        connection_id, peer_host, header.client_id or "", header.api_version, header.correlation_id
    )
    handler = handler_of(header.api_key)
    if header.api_version != api.newest and not handler.native:
        request = handler.from_older(request, newest_request_class(header.api_key))
    counters = parts.requests.of(header.api_key)
    reply = _answer(_Call(parts, handler, header, request, counters, began), context)
    seconds = parts.requests.clock() - began
    counters.request_bytes += len(frame)
    counters.local_seconds += seconds
    if isinstance(reply, list):
        counters.answered(reply, seconds)
    return reply


def prepare(api_key: int, version: int) -> None:
    """Import and compile now what the first such request would have to wait for."""
    handler_of(api_key)
    decoder.prepare(request_class(api_key, version), records=writable)
    encoder.prepare(response_class(api_key, version))


def writable(records: Buffer) -> Writable:
    """Produce stamps its batches.  Those of a frame that was put together are a copy already."""
    if type(records) is memoryview and not records.readonly:
        return records
    return bytearray(records)


def error_code(error: KafkaError) -> ErrorCode:
    """The number that goes on the wire for this error."""
    return ErrorCode(error.code)


def _answer(call: _Call, context: Context) -> Reply | asyncio.Future[Reply]:
    try:
        call.parts.features.check_served(call.header.api_key)
        result = call.handler.handle(call.parts, context, call.request)
    except KafkaError as error:
        result = _refuse(call, error)
    except CloseConnection:
        raise
    except Exception as error:  # noqa: BLE001  Logged there, with its trace.
        result = _unexpected(call, error)
    if hasattr(result, "__await__"):
        return asyncio.get_running_loop().create_task(_later(call, result))
    return _encode(call, result)


async def _later(call: _Call, result: Awaitable[Any]) -> Reply:
    try:
        response = await result
    except KafkaError as error:
        response = _refuse(call, error)
    except CloseConnection:
        raise
    except Exception as error:  # noqa: BLE001  Logged there, with its trace.
        response = await _unexpected(call, error)
    reply = _encode(call, response)
    call.counters.answered(reply, call.parts.requests.clock() - call.began)
    return reply


async def _unexpected(call: _Call, error: Exception) -> Any:
    """What nobody expected is logged, and answered after a pause.

    Some clients ask again at once, for ever; the pause keeps them from filling the log.
    """
    log.error(
        "event=request_failed api=%s version=%d client=%r",
        MODULES[call.header.api_key],
        call.header.api_version,
        call.header.client_id,
        exc_info=error,
    )
    parts = call.parts
    deadline_ms = parts.clock.now_ms() + UNEXPECTED_PAUSE_MS
    await parts.waiting.park(lambda last: last or None, keys=(), deadline_ms=deadline_ms)
    text = f"{type(error).__name__}; the broker's log has the trace"
    return _refuse(call, UnknownServerError(text))


def _refuse(call: _Call, error: KafkaError) -> Any:
    call.counters.refused(error)
    return call.handler.refuse(call.request, error)


def _encode(call: _Call, response: Any) -> Reply:
    if isinstance(response, Encoded):
        return response.chunks
    header = call.header
    wanted = response_class(header.api_key, header.api_version)
    try:
        if type(response) is not wanted:
            response = call.handler.to_older(response, wanted)
        return encode_response_chunks(header.correlation_id, response)
    except Exception as error:
        # Our own mistake.  Later replies of this connection must not overtake the one missing.
        log.exception("event=response_not_encoded api=%s", MODULES[header.api_key])
        raise CloseConnection("the response could not be encoded") from error


def _wrong_version(header: RequestHeader) -> Reply:
    """ApiVersions alone answers a version that is not served: with version 0 and code 35."""
    handler = handler_of(API_VERSIONS)
    response = handler.refuse(None, UnsupportedVersion(f"version {header.api_version}"))
    old = downgrade(response, response_class(API_VERSIONS, 0))
    return encode_response_chunks(header.correlation_id, old)


@cache
def handler_of(api_key: int) -> _Handler:
    """The functions of an API's module."""
    module = import_module(f"sharegroup.broker.handlers.{MODULES[api_key]}")
    return _Handler(
        handle=module.handle,
        refuse=module.refuse,
        native=getattr(module, "NATIVE", False),
        from_older=getattr(module, "from_older", upgrade),
        to_older=getattr(module, "to_older", downgrade),
    )
