"""A table of handlers with a fault script in front of it.

Each request goes through the script before its handler:

    fail               the handler refuses the request, or some of its partitions
    drop               the connection closes, before or after the handler
    delay, freeze      the handler, or the answer, waits

While a request waits before its handler, later requests of the same connection wait behind it, so
the broker applies them in their order as always (ADR 0006).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from types import GeneratorType
from typing import Any, cast

from sharegroup import errors
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handler_contract import (
    ApiHandler,
    CloseConnection,
    HandlerOf,
    Handling,
    Later,
    RequestContext,
)
from sharegroup.broker.parts import Parts
from sharegroup.broker.server.handler_table import handler_of as real_handler_of
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.errors import KafkaError
from sharegroup.faults.script import EXEMPT_CLIENT_ID, Delay, Drop, Fail, Fault, FaultScript
from sharegroup.ids import SharePartitionKey
from sharegroup.wire.codec.apis import APIS, Api

PARTITION_APIS = frozenset(
    {
        "Produce",
        "Fetch",
        "ListOffsets",
        "DeleteRecords",
        "ShareFetch",
        "ShareAcknowledge",
        "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets",
    }
)
"""The APIs whose handlers look up each partition."""

PARTITION_ERRORS: tuple[type[KafkaError], ...] = (
    errors.CorruptMessage,
    errors.FencedLeaderEpoch,
    errors.InvalidRecordState,
    errors.KafkaStorageError,
    errors.LeaderNotAvailable,
    errors.NotLeaderOrFollower,
    errors.OffsetNotAvailable,
    errors.OffsetOutOfRange,
    errors.ReplicaNotAvailable,
    errors.TopicAuthorizationFailed,
    errors.UnknownLeaderEpoch,
    errors.UnknownServerError,
    errors.UnknownTopicId,
    errors.UnknownTopicOrPartition,
)
"""The errors that Kafka answers for a partition; others fail the request as a whole."""


@dataclass(frozen=True, slots=True)
class Handle:
    """The handler of one request."""

    begin: Callable[[Parts], Any]
    """Calls the handler, or begins its steps."""
    only_reads: bool
    """Whether its steps only read, so they may be begun twice."""

    def followed(self, parts: Parts, follow: Callable[[Any], Any]) -> Any:
        """Return what follows the result, for a request that uses up a fault."""
        result = self.begin(parts)
        # Steps that only read have no order to keep.  As steps they could be dropped and begun
        # anew, and then the fault would be used up.
        return follow(result) if self.only_reads else _followed(result, follow)


class FaultyHandlers:
    """Returns the handler of an API with the faults of a script; it is a `HandlerOf`."""

    def __init__(self, script: FaultScript, handler_of: HandlerOf = real_handler_of) -> None:
        self._script = script
        self._handler_of = handler_of
        self._handlers: dict[int, ApiHandler] = {}
        self._held: dict[int, asyncio.Future[None]] = {}
        """The last request of each connection that waits before its handler."""

    def __call__(self, api_key: int) -> ApiHandler:
        handler = self._handlers.get(api_key)
        if handler is None:
            handler = self._handlers[api_key] = self._faulty(api_key)
        return handler

    def _faulty(self, api_key: int) -> ApiHandler:
        real, api = self._handler_of(api_key), APIS[api_key]

        def handle(parts: Parts, context: RequestContext, request: Any) -> Any:
            handler = Handle(
                lambda used: real.handle(used, context, request),
                only_reads=real.handling is Handling.READS_IN_STEPS,
            )
            return self._handle(api, parts, context, request, handler)

        def handle_in_steps(parts: Parts, context: RequestContext, request: Any) -> Any:
            result = handle(parts, context, request)
            # A handler may return the steps of another one.
            while type(result) is GeneratorType:
                result = yield from result
            return result

        at_once = real.handling is Handling.AT_ONCE
        return replace(real, handle=handle if at_once else handle_in_steps)

    def _handle(
        self, api: Api, parts: Parts, context: RequestContext, request: Any, handle: Handle
    ) -> Any:
        """Handle a request, now or later, with the fault that matches it."""
        # First, so a test can look at a broker that is frozen.
        if context.client_id == EXEMPT_CLIENT_ID:
            return handle.begin(parts)
        by_partition = PARTITION_ERRORS if api.name in PARTITION_APIS else ()
        of_partitions, fault = self._script.match(
            api, context.client_id, request, by_partition=by_partition
        )
        if of_partitions:
            parts = parts_with(parts, of_partitions)
        behind = self._held.get(context.connection_id)
        waits = fault is not None and isinstance(fault.action, Delay) and not fault.action.applied
        # Called here and not in a task, so requests are decided in the order of their arrival, as
        # by a broker without faults (ADR 0006).
        if behind is None and not waits and not self._script.is_frozen:
            return self._handle_now(parts, fault, handle)
        return Later(self._handle_later(parts, context, fault, handle))

    def _handle_now(self, parts: Parts, fault: Fault | None, handle: Handle) -> Any:
        action = None if fault is None else fault.action
        match action:
            case Fail(error):
                raise error(repr(fault))
            case Drop(applied):
                if applied:
                    # `handle` is called at once, and its steps are made: the request is applied in
                    # its order, and only the answer is lost.
                    return handle.followed(
                        parts, lambda result: Later(self._drop_after(parts, result, fault))
                    )
                raise CloseConnection(repr(fault))
            case Delay(seconds, applied) if applied:
                return handle.followed(
                    parts, lambda result: Later(self._answer_after(parts, result, seconds))
                )
            case _:
                return _followed(handle.begin(parts), self._gated)

    def _handle_later(
        self, parts: Parts, context: RequestContext, fault: Fault | None, handle: Handle
    ) -> Awaitable[Any]:
        """Handle a request after those before it, its delay, and the end of a freeze."""
        connection_id = context.connection_id
        behind = self._held.get(connection_id)
        handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held[connection_id] = handled
        action = None if fault is None else fault.action
        pause: asyncio.Future[None] | None = None
        if isinstance(action, Delay) and not action.applied:
            # The pause begins when the request arrives, not when those before it are handled.
            pause, fault = self._script.pause(parts.clock, action.seconds), None

        def release(_: object = None) -> None:
            if not handled.done():
                handled.set_result(None)
            if self._held.get(connection_id) is handled:
                del self._held[connection_id]

        async def run() -> Any:
            if behind is not None:
                # `wait`, because awaiting the future itself would cancel it with this request.
                await asyncio.wait([behind])
            if pause is not None:
                await pause
            await self._script.wait_until_thawed()
            try:
                result = self._handle_now(parts, fault, handle)
            finally:
                # Before the response: the next request may be handled when this one is, as without
                # faults.
                release()
            return await _response(parts, result)

        task = asyncio.ensure_future(run())
        # A task that is cancelled before its first step runs none of its code.
        task.add_done_callback(release)
        return task

    def _gated(self, result: Any) -> Any:
        """Return a result; if its response has to be awaited, it waits for a thaw as well."""
        if type(result) is not Later:
            return result
        return Later(self._after_thaw(result.response))

    async def _after_thaw(self, response: Awaitable[Any]) -> Any:
        answer = await response
        await self._script.wait_until_thawed()
        return answer

    async def _answer_after(self, parts: Parts, result: Any, seconds: float) -> Any:
        answer = await _response(parts, result)
        await self._script.pause(parts.clock, seconds)
        await self._script.wait_until_thawed()
        return answer

    async def _drop_after(self, parts: Parts, result: Any, fault: Fault | None) -> Any:
        await _response(parts, result)
        raise CloseConnection(repr(fault))


def _followed(result: Any, follow: Callable[[Any], Any]) -> Any:
    """Return what follows a result; of a handler in steps, steps that return it."""
    if type(result) is not GeneratorType:
        return follow(result)

    def steps() -> Any:
        made = result
        # A handler may return the steps of another one.
        while type(made) is GeneratorType:
            made = yield from made
        return follow(made)

    return steps()


async def _response(parts: Parts, result: Any) -> Any:
    """Await the response in any result of a handler."""
    while True:
        if type(result) is Later:
            result = await result.response
        elif type(result) is GeneratorType:
            result = await parts.slices.finish(result)
        else:
            return result


# Single partitions fail inside of a handler, with the handler's own treatment of errors.
#
# A handler looks up the log, or the share partition, of every partition that it serves. For a
# request with a fault it gets parts in which these look-ups raise the error of the fault. So the
# answer has the error in its place, other partitions are served, and nothing is locked or written
# for the partition that fails.


def parts_with(parts: Parts, faults: Sequence[Fault]) -> Parts:
    """Return the parts for one request, in which the partitions of the faults cannot be used."""
    refusal = _Refusal(faults)
    # A copy for this request alone; other requests use the parts meanwhile.
    faulty = copy.copy(parts)
    # The proxies have all methods of the classes, and handlers use nothing else of them.
    faulty.topics = cast("Topics", _FaultyTopics(parts.topics, refusal))
    faulty.share_partitions = cast(
        "SharePartitions", _FaultySharePartitions(parts.share_partitions, parts.topics, refusal)
    )
    return faulty


class _Refusal:
    """Raises the error of the first fault that affects a partition.

    A fault counts the request when it raises for the first time.
    """

    __slots__ = ("_begun", "_faults")

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._begun: set[int] = set()

    def check(self, topic: str, partition: int, *, fetches: bool = False) -> None:
        """Raise the error of a fault; only acknowledgements, not fetches, have an invalid state."""
        for fault in self._faults:
            assert isinstance(fault.action, Fail)
            error = fault.action.error
            if fault.filter.topic not in (None, topic):
                continue
            if fault.filter.partition not in (None, partition):
                continue
            if fetches and error is errors.InvalidRecordState:
                continue
            if fault.number not in self._begun:
                if fault.is_used_up:
                    continue  # By another request, since this one arrived.
                fault.count += 1
                self._begun.add(fault.number)
            raise error(f"topic {topic!r} partition {partition}: {fault!r}")


class _FaultyTopics:
    """The topics of a broker, of which some partitions cannot be used."""

    def __init__(self, topics: Topics, refusal: _Refusal) -> None:
        self._topics = topics
        self._refusal = refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topics, name)

    def named(self, name: Any, partition: int) -> Any:
        # First, so a partition that does not exist has its own error and counts no fault.
        found = self._topics.named(name, partition)
        self._refusal.check(name, partition)
        return found

    def identified(self, topic_id: Any, partition: int) -> Any:
        # First, as in `named`; it also tells the name, by which faults are set.
        found = self._topics.identified(topic_id, partition)
        self._refusal.check(found[0].name, partition)
        return found


class _FaultySharePartitions:
    """The share partitions of a broker, of which some cannot be used."""

    def __init__(
        self, share_partitions: SharePartitions, topics: Topics, refusal: _Refusal
    ) -> None:
        self._share_partitions = share_partitions
        self._topics = topics
        self._refusal = refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._share_partitions, name)

    def get(self, key: SharePartitionKey) -> Any:
        """Return the share partition for a fetch."""
        self._check(key, fetches=True)
        return self._share_partitions.get(key)

    def loaded(self, key: SharePartitionKey) -> Any:
        self._check(key)
        return self._share_partitions.loaded(key)

    def _check(self, key: SharePartitionKey, *, fetches: bool = False) -> None:
        topic = self._topics.catalog.by_id(key.topic_id)
        if topic is not None:
            self._refusal.check(topic.name, key.partition, fetches=fetches)
