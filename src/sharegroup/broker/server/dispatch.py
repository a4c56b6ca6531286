"""Turns a frame into a reply: header, version, decoding, the handler, the error code.

The composition root passes the table of handlers (`broker.server.handler_table`); what a handler
gets and may return is in `broker.handler_contract`.  A handler takes the newest version of its
request and returns the newest version of its response.  Conversion from and to the client's version
happens here, by field name.

Requests are decided in the order in which they came, each before the next one of its connection is
dispatched (ADR 0006).  Only the reply may wait: a handler returns its response, or a `Later` of it.

Long work is done in slices (`broker.load.slices`): large requests are decoded and decided, and
large answers encoded, in slices.  `Handling` says how a handler works; a refusal may be steps, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import GeneratorType
from typing import Any, NamedTuple

from kio.static.primitive import i32Timedelta

from sharegroup.broker.access.audit import ADMINISTRATIVE
from sharegroup.broker.access.checks import check_gates
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.handler_contract import (
    ApiHandler,
    CloseConnection,
    Encoded,
    HandlerOf,
    Handling,
    Later,
    RequestContext,
)
from sharegroup.broker.load.answer_budget import UNLIMITED, AnswerRoom
from sharegroup.broker.load.late_requests import Decoding, Take
from sharegroup.broker.load.request_counters import (
    CLIENT_ID_CHARACTERS_MAX,
    HOLD_SECONDS,
    ApiCounters,
    RequestOrigin,
    note_hold,
)
from sharegroup.broker.parts import Parts
from sharegroup.errors import InvalidRequest, KafkaError, UnknownServerError, UnsupportedVersion
from sharegroup.steps import Steps, Unfinished, attempt, run_to_end
from sharegroup.wire.batches.batches import Writable
from sharegroup.wire.codec import decoder, encoder
from sharegroup.wire.codec.apis import APIS, newest_request_class, request_class, response_class
from sharegroup.wire.codec.convert import convert_steps, downgrade, empty, upgrade
from sharegroup.wire.codec.decoder import Buffer, DecodeError, decode, decode_steps
from sharegroup.wire.codec.encoder import Chunk, encode_response_chunks, encode_response_steps
from sharegroup.wire.codec.headers import RequestHeader, decode_request_header
from sharegroup.wire.codec.refusals import refusal

log = logging.getLogger(__name__)

PRODUCE, API_VERSIONS, WRITE_TXN_MARKERS = 0, 18, 27

UNEXPECTED_PAUSE_MS = 500

ELEMENTS_MAX = 30_000
"""Maximum number of array elements of one request.  A requested partition costs 25 us, and 2 KB
until it is answered; a request may name all the partitions that a broker may have."""

WHOLE_BYTES_MAX = 4_096
"""Requests up to this size are decoded whole; a share fetch of this size has 680 elements."""

WHOLE_ELEMENTS_MAX = 512
"""A large request with more elements is decoded in slices."""

WIDE_ELEMENTS_MAX = 128
"""The same limit for requests that change state in steps."""


Reply = list[Chunk]

Prepared = dict[tuple[int, int], tuple[ApiHandler, type[Any]]]
"""By API key and version: the handler and the class of a request (`parts.Parts.prepared`)."""


class _DecodedRequest(NamedTuple):
    """A decoded request and all that is needed to answer it."""

    parts: Parts
    handler: ApiHandler
    header: RequestHeader
    context: RequestContext
    request: Any
    counters: ApiCounters
    began: float
    throttle_ms: int = 0
    """The throttle time of the answer, because of the bytes of the request."""


class _LargeRequest(NamedTuple):
    """A large request that is not decoded yet."""

    parts: Parts
    handler: ApiHandler
    header: RequestHeader
    context: RequestContext
    began: float
    frame_bytes: int


def dispatch(
    parts: Parts,
    handler_of: HandlerOf,
    frame: memoryview,
    *,
    connection_id: int,
    peer: Peer,
    answers: AnswerRoom = UNLIMITED,
) -> Reply | asyncio.Future[Reply]:
    """Dispatch one request; return the chunks of its reply, or a future of them.

    An empty list means that there is no reply.  Raises CloseConnection if the protocol has no
    answer to the frame.
    """
    # The number is taken now: when a late request is taken, the connection has counted others.
    late, number = parts.late_requests, answers.request_number
    # Behind a request that is still being decoded: requests are decided in their order (ADR 0006).
    if connection_id in late.waiting:
        return late.wait(
            connection_id,
            partial(_take, parts, handler_of, frame, connection_id, peer, answers, number),
            lambda: peer.throttled_until_ms,
        )
    taken = _take(parts, handler_of, frame, connection_id, peer, answers, number)
    if isinstance(taken, Decoding):
        return late.begin(connection_id, taken)
    return taken


def _take(
    parts: Parts,
    handler_of: HandlerOf,
    frame: memoryview,
    connection_id: int,
    peer: Peer,
    answers: AnswerRoom,
    request_number: int,
) -> Reply | asyncio.Future[Reply] | Decoding:
    """Decode a request and decide it, or begin to decode it in slices."""
    requests = parts.requests
    began = requests.clock()
    if began >= requests.sample_due:
        requests.sample(began)
    header = _served_header(parts, frame)
    api_key, version, correlation_id, client_id, position = header
    prepared = parts.prepared.get((api_key, version))
    if prepared is None:
        again = partial(
            _take, parts, handler_of, frame, connection_id, peer, answers, request_number
        )
        return _unprepared(parts, handler_of, header, peer, connection_id, again)
    handler, cls = prepared
    name, number = client_id or "", request_number
    context = RequestContext(
        connection_id, peer, name, version, correlation_id, answers, number, api_key,
        peer.rights.of_request(api_key),
    )  # fmt: skip
    # A request that is decoded at once is decided without a pause if it changes state, so the limit
    # of such requests is lower.
    frame_bytes, elements_max = len(frame), ELEMENTS_MAX
    if is_large := frame_bytes > WHOLE_BYTES_MAX:
        changes = handler.handling is Handling.CHANGES_IN_STEPS
        elements_max = WIDE_ELEMENTS_MAX if changes else WHOLE_ELEMENTS_MAX
    try:
        # Most large requests are large by their records and have few elements.  They are decoded at
        # once; one with more elements fails here at the limit and is decoded again, in slices.
        request, _ = decode(cls, frame, position, records=writable, elements_max=elements_max)
    except DecodeError as error:
        if not is_large:
            raise _undecodable(header, error) from error
        arrived = _LargeRequest(parts, handler, header, context, began, frame_bytes)
        return _decode_late(arrived, cls, frame)
    counters = parts.requests.of(api_key)
    call = _DecodedRequest(parts, handler, header, context, request, counters, began)
    if parts.quotas.is_on:
        call = _charged(call, frame_bytes)
    return _start(call, frame_bytes, began)


def _served_header(parts: Parts, frame: memoryview) -> RequestHeader:
    """Return the header of a request that this broker serves."""
    try:
        header = decode_request_header(frame)
    except DecodeError as error:
        raise CloseConnection(f"request header: {error}") from error
    api = APIS.get(header.api_key)
    # Without the setting, the requests between brokers are unknown here (ADR 0010).
    if api is None or (api.between_brokers and not parts.serves_share_state):
        raise CloseConnection(f"api key {header.api_key} is not served")
    return header


def _unprepared(
    parts: Parts,
    handler_of: HandlerOf,
    header: RequestHeader,
    peer: Peer,
    connection_id: int,
    again: Take,
) -> Reply | Decoding:
    """Prepare a type of request in slices, then take it ``again``; refuse a wrong version."""
    api, version = APIS[header.api_key], header.api_version
    if not api.oldest <= version <= api.newest:
        if api.key != API_VERSIONS:
            raise CloseConnection(
                f"{api.name} version {version} is not served, only {api.oldest} to {api.newest}"
            )
        version = 0
        if (prepared := parts.prepared.get((API_VERSIONS, version))) is not None:
            return _wrong_version(prepared[0], header)
    steps = partial(prepare_steps, parts.prepared, handler_of, api.key, version)
    # The client has no part in these imports, so they are not charged to its quota.
    origin = RequestOrigin(parts.requests, header, peer.host)
    later = parts.slices.later(steps, connection_id, origin)
    return Decoding(later, lambda _: again())


def _decode_late(arrived: _LargeRequest, cls: type[Any], frame: memoryview) -> Decoding:
    """Begin to decode a large request in slices."""
    parts, header, context = arrived.parts, arrived.header, arrived.context
    make = partial(_large, arrived, partial(_decoding, cls, frame, header))
    later = parts.slices.later(make, context.connection_id, _origin(arrived))
    return Decoding(later, partial(_start_late, arrived))


def _origin(request: _LargeRequest | _DecodedRequest) -> RequestOrigin:
    """Return the origin of a request, which counts the slices of the work on it."""
    parts, context = request.parts, request.context
    worked = partial(parts.quotas.worked, context) if parts.quotas.is_on else None
    return RequestOrigin(parts.requests, request.header, context.peer.host, worked)


def _charged(call: _DecodedRequest, frame_bytes: int) -> _DecodedRequest:
    """Count the bytes of a Produce request, and note its throttle time for the answer."""
    # The bytes of a fetch are known only with its answer, so its handler counts them.
    if call.header.api_key != PRODUCE:
        return call
    return call._replace(throttle_ms=call.parts.quotas.produced(call.context, frame_bytes))


def _decoding(cls: type[Any], frame: memoryview, header: RequestHeader) -> Steps[Any]:
    """Decode a large request in steps."""
    try:
        return (
            yield from decode_steps(
                cls, frame, header.body_position, records=writable, elements_max=ELEMENTS_MAX
            )
        )
    except DecodeError as error:
        raise _undecodable(header, error) from error


def _large(
    arrived: _LargeRequest, decoding: Callable[[], Steps[Any]]
) -> Steps[tuple[_DecodedRequest, Any]]:
    """Decode a large request in steps, and decide it in steps if it changes state.

    Returns the call and the handler's result, which is None if the request is not decided yet.
    """
    parts, handler, header, context, began, frame_bytes = arrived
    request = yield from decoding()
    # Only the general conversion can be made in steps; an API with its own converts at once.
    if not handler.is_native and handler.from_older is upgrade:
        newest = handler.upgraded_class or newest_request_class(header.api_key)
        request = yield from convert_steps(request, newest)
    counters = parts.requests.of(header.api_key)
    call = _DecodedRequest(parts, handler, header, context, request, counters, began)
    if parts.quotas.is_on:
        call = _charged(call, frame_bytes)
    if handler.handling is not Handling.CHANGES_IN_STEPS:
        return call, None
    call = _in_newest_version(call)
    try:
        _admit(call)
        handle: Callable[..., Steps[Any]] = handler.handle
        result = yield from handle(parts, context, call.request)
    except KafkaError as error:
        result = _refuse(call, error)
    except CloseConnection:
        raise
    except Exception as error:  # noqa: BLE001  Logged there, with its trace.
        result = Later(_unexpected(call, error))
    if type(result) is Later:
        # A task continues when the connection closes: a failed write must be detected.
        result.response = asyncio.ensure_future(result.response)
    return call, result


def _start_late(
    arrived: _LargeRequest, large: tuple[_DecodedRequest, Any]
) -> Reply | asyncio.Future[Reply]:
    """Decide a request that was decoded in slices, unless it was also decided in slices."""
    call, result = large
    if result is None:
        return _start(call, arrived.frame_bytes, call.parts.requests.clock())
    call.counters.request_bytes += arrived.frame_bytes
    return _pending(call, result)


def _start(
    call: _DecodedRequest, frame_bytes: int, resumed: float
) -> Reply | asyncio.Future[Reply]:
    """Decide a decoded request; ``resumed`` is the time since which it holds the event loop."""
    reply = _answer(call)
    ended = call.parts.requests.clock()
    seconds, counters = ended - resumed, call.counters
    counters.request_bytes += frame_bytes
    counters.local_seconds += seconds
    if seconds > HOLD_SECONDS:
        note_hold(call.parts.requests, call.header, call.context.peer.host, seconds)
    if call.parts.quotas.is_on:
        call.parts.quotas.worked(call.context, seconds)
    if isinstance(reply, list):
        counters.answered(reply, ended - call.began)
    return reply


def _undecodable(header: RequestHeader, error: DecodeError) -> CloseConnection:
    """Return the error for a request that cannot be decoded."""
    name = APIS[header.api_key].name
    return CloseConnection(f"{name} version {header.api_version}: {error}")


def prepare_steps(
    prepared: Prepared, handler_of: HandlerOf, api_key: int, version: int
) -> Steps[None]:
    """Import what a type of request needs and compile its codecs, unless that has been done."""
    if (api_key, version) in prepared:
        return
    # Imported here, because a start needs no request.
    from sharegroup.broker.server.preparing import import_for_request

    try:
        yield from import_for_request(api_key, version)
        handler, cls = handler_of(api_key), request_class(api_key, version)
        decoder.prepare(cls, records=writable)
        yield
        encoder.prepare(response_class(api_key, version))
        yield
        encoder.prepare(response_class(api_key, version), in_steps=True)
    # The cause may be a full disk or a lack of descriptors: the next request of this type tries
    # again.
    except (ImportError, OSError) as error:
        log.exception("event=import_failed api=%s version=%d", APIS[api_key].snake_name, version)
        raise CloseConnection(f"{APIS[api_key].name} could not be imported") from error
    # Last, so a type counts as prepared only when each of its codecs is compiled.
    prepared[api_key, version] = handler, cls
    yield


def writable(records: Buffer) -> Writable:
    """Return a buffer of the records that may be changed, because Produce stamps its batches.

    The records of a reassembled frame are a private copy already, so they are used in place.
    """
    if type(records) is memoryview and not records.readonly:
        return records
    return bytearray(records)


def _answer(call: _DecodedRequest) -> Reply | asyncio.Future[Reply]:
    """Call the handler of a request; return the reply or a future of it."""
    handler, handling = call.handler, call.handler.handling
    handle: Callable[..., Any] = handler.handle
    try:
        call = _in_newest_version(call)
    except Exception as error:  # noqa: BLE001  Logged there, with its trace.
        # The handler can only refuse a request of the newest version, and this one could not be
        # converted.
        newest = handler.upgraded_class or newest_request_class(call.header.api_key)
        call = call._replace(request=empty(newest))
        return _pending(call, Later(_unexpected(call, error, InvalidRequest)))
    try:
        _admit(call)
        result = handle(call.parts, call.context, call.request)
        if handling is Handling.CHANGES_IN_STEPS:
            result = run_to_end(result)
    except KafkaError as error:
        return _refused(call, error)
    except CloseConnection:
        raise
    except Exception as error:  # noqa: BLE001  Logged there, with its trace.
        return _pending(call, Later(_unexpected(call, error)))
    if handling is Handling.READS_IN_STEPS:
        again = partial(handle, call.parts, call.context, call.request)
        return _in_slices(call, result, again)
    if type(result) is Later:
        return _pending(call, result)
    return _encode(call, result)


def _in_newest_version(call: _DecodedRequest) -> _DecodedRequest:
    """Return the call with its request in the version that its handler takes."""
    handler, header = call.handler, call.header
    if handler.is_native or header.api_version == APIS[header.api_key].newest:
        return call
    newest = handler.upgraded_class or newest_request_class(header.api_key)
    if type(call.request) is newest:
        return call  # Converted in steps.
    return call._replace(request=handler.from_older(call.request, newest))


def _admit(call: _DecodedRequest) -> None:
    """Raise the error of a request that may not be handled; log an administrative request."""
    parts, api_key, gates = call.parts, call.header.api_key, call.handler.gates
    parts.features.check_served(api_key)
    if gates and not (rights := call.context.rights).is_unlimited:
        check_gates(gates, rights, call.request)
    # After the checks: a request that is refused changes nothing, and its denial has its own line.
    if api_key in ADMINISTRATIVE:
        parts.audit.administered(call.context.peer, api_key, call.request)


def _in_slices(
    call: _DecodedRequest, handling: Steps[Any], again: Callable[[], Steps[Any]]
) -> Reply | asyncio.Future[Reply]:
    """Answer a request in slices; ``handling`` are the begun steps of its handler or refusal."""
    # The steps that the handler returned serve for the attempt, so a small request makes them once.
    begun_steps = [handling]

    def make() -> Steps[Encoded | Later[Any]]:
        return _reply_steps(call, begun_steps.pop() if begun_steps else again())

    try:
        reply = call.parts.slices.run(make, call.context.connection_id, _origin(call))
        begun_steps.clear()  # Later the handler must start again, because things may have changed.
    except KafkaError as error:
        return _refused(call, error)
    except CloseConnection:
        raise
    except Exception as error:  # noqa: BLE001  Logged there, with its trace.
        return _pending(call, Later(_unexpected(call, error)))
    if isinstance(reply, Encoded):
        return reply.chunks
    return _pending(call, Later(reply) if isinstance(reply, asyncio.Future) else reply)


def _refused(call: _DecodedRequest, error: KafkaError) -> Reply | asyncio.Future[Reply]:
    """Return the reply of a refusal."""
    result = _refuse(call, error)
    if type(result) is GeneratorType:
        return _in_slices(call, result, partial(_refusal, call, error))
    return _encode(call, result)


def _reply_steps(call: _DecodedRequest, handling: Steps[Any]) -> Steps[Encoded | Later[Any]]:
    """Return the reply, or a `Later` of the response if the request has to wait."""
    result = yield from handling
    if type(result) is Later:
        return result
    return Encoded((yield from _encode_steps(call, result)))


def _pending(call: _DecodedRequest, result: Any) -> asyncio.Future[Reply]:
    """Return a future of the reply to a request whose result has to be awaited."""
    return asyncio.get_running_loop().create_task(_later(call, result))


async def _response(call: _DecodedRequest, result: Any) -> Any:
    """Await the response of a result; steps are those of a refusal."""
    while True:
        if type(result) is Later:
            result = await result.response
        elif type(result) is GeneratorType:
            result = await call.parts.slices.finish(result)
        else:
            return result


async def _later(call: _DecodedRequest, result: Any) -> Reply:
    """Await the result of a handler and encode its reply."""
    try:
        response = await _response(call, result)
    except KafkaError as error:
        response = await _response(call, _refuse(call, error))
    except CloseConnection:
        raise
    except Exception as error:  # noqa: BLE001  Logged there, with its trace.
        response = await _response(call, Later(_unexpected(call, error)))
    requests = call.parts.requests
    resumed, is_one_hold = requests.clock(), True
    if isinstance(response, Encoded):
        reply = response.chunks
    else:
        steps = partial(_encode_steps, call, response)
        # Most answers are small; only what is not encoded after some steps waits for slices.
        encoded = attempt(steps())
        if isinstance(encoded, Unfinished):
            is_one_hold = False
            owner = call.context.connection_id
            encoded = await call.parts.slices.later(steps, owner, _origin(call))
        reply = encoded
    ended = requests.clock()
    call.counters.answered(reply, ended - call.began)
    if is_one_hold:
        if (seconds := ended - resumed) > HOLD_SECONDS:
            note_hold(requests, call.header, call.context.peer.host, seconds)
        if call.parts.quotas.is_on:
            call.parts.quotas.worked(call.context, seconds)
    return reply


async def _unexpected(
    call: _DecodedRequest, error: Exception, answer: type[KafkaError] = UnknownServerError
) -> Any:
    """Log an unexpected error of a handler, and refuse the request with ``answer`` after a pause.

    Some clients repeat such a request at once and endlessly; the pause keeps them from filling the
    log.
    """
    log.error(
        "event=request_failed api=%s version=%d client=%r",
        APIS[call.header.api_key].snake_name,
        call.header.api_version,
        (call.header.client_id or "")[:CLIENT_ID_CHARACTERS_MAX],
        exc_info=error,
    )
    parts = call.parts
    deadline_ms = parts.clock.now_ms() + UNEXPECTED_PAUSE_MS
    await parts.waiting.park(lambda last: last or None, keys=(), deadline_ms=deadline_ms)
    text = f"{type(error).__name__}; the log of the broker contains the traceback"
    return _refuse(call, answer(text))


def _refuse(call: _DecodedRequest, error: KafkaError) -> Any:
    """Count a refusal; return its response, or steps that return it."""
    call.counters.refused(error)
    # The traceback refers to frames that hold the request, and a refusal may be steps that take a
    # while.
    return _refusal(call, error.with_traceback(None))


def _refusal(call: _DecodedRequest, error: KafkaError) -> Any:
    """Return the response to a request that failed as a whole, or steps that return it."""
    handler, header = call.handler, call.header
    if handler.refuse is not None:
        return handler.refuse(call.request, error)
    api = APIS[header.api_key]
    version = header.api_version if handler.is_native else api.newest
    cls, instead = response_class(api.key, version), handler.refused
    return refusal(call.request, cls, error, instead, with_items=handler.refuses_items)


def _encode(call: _DecodedRequest, response: Any) -> Reply:
    """Convert a response to the client's version and encode it."""
    if isinstance(response, Encoded):
        return response.chunks
    if call.parts.quotas.is_on:
        response = _throttled(call, response)
    header = call.header
    cls = response_class(header.api_key, header.api_version)
    try:
        if type(response) is not cls:
            response = call.handler.to_older(response, cls)
        return encode_response_chunks(header.correlation_id, response)
    except Exception as error:
        # A fault of the broker.  Later replies of this connection must not overtake the missing
        # one.
        log.exception("event=response_not_encoded api=%s", APIS[header.api_key].snake_name)
        raise CloseConnection("the response could not be encoded") from error


def _encode_steps(call: _DecodedRequest, response: Any) -> Steps[Reply]:
    """Convert and encode a response like `_encode`, in steps."""
    if call.parts.quotas.is_on:
        response = _throttled(call, response)
    header, handler = call.header, call.handler
    cls = response_class(header.api_key, header.api_version)
    try:
        if type(response) is not cls:
            if handler.to_older is downgrade:
                response = yield from convert_steps(response, cls)
            else:
                response = handler.to_older(response, cls)
        return (yield from encode_response_steps(header.correlation_id, response))
    except Exception as error:
        log.exception("event=response_not_encoded api=%s", APIS[header.api_key].snake_name)
        raise CloseConnection("the response could not be encoded") from error


def _throttled(call: _DecodedRequest, response: Any) -> Any:
    """Return the response with the throttle time of its client.

    A handler may have set a throttle time, too; the longest is sent.  Older versions of some APIs
    have no such field; their clients only notice that the broker does not read.
    """
    throttle_ms = call.throttle_ms
    if call.header.api_key != WRITE_TXN_MARKERS:  # As in Kafka, where brokers send it.
        throttle_ms = max(throttle_ms, call.parts.quotas.request_throttle_ms(call.context))
    own = getattr(response, "throttle_time", None)
    throttle_time = timedelta(milliseconds=throttle_ms)
    if own is None or throttle_time <= own:
        return response
    return replace(response, throttle_time=i32Timedelta.parse(throttle_time))


def _wrong_version(handler: ApiHandler, header: RequestHeader) -> Reply:
    """Answer an unsupported version of ApiVersions, with version 0 and error code 35.

    It is the only API that answers unsupported versions.
    """
    assert handler.refuse is not None, "it lists what the client may try instead"
    response = handler.refuse(None, UnsupportedVersion(f"version {header.api_version}"))
    # KIP-511: every client can read version 0, whatever version it has asked for.
    old = downgrade(response, response_class(API_VERSIONS, 0))
    return encode_response_chunks(header.correlation_id, old)
