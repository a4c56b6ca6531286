"""In the client's process for P12: fill a queue of another kind, then take and acknowledge each.

The messages are numbered, and must come once each and in order.  The clock runs from the first
call of the handler until the server has said that nothing is left, so that acknowledgements that
are still on their way count as work and not as speed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import uvloop

from tests.bench.client_process import Span
from tests.bench.failure import BenchError

AT_ONCE = 500
VALUE_BYTES = 100
IDLE_SECONDS_MAX = 60.0
POLL_SECONDS = 0.002


class Handler:
    """The application: it checks what came and counts, for all three alike."""

    def __init__(self, records: int, broker_pid: int) -> None:
        self.seen = 0
        self.records = records
        self.span: Span | None = None
        self._broker_pid = broker_pid

    @property
    def done(self) -> bool:
        return self.seen == self.records

    async def handle(self, value: bytes) -> None:
        self.take(value)

    def take(self, value: bytes) -> None:
        if self.span is None:
            self.span = Span(self._broker_pid)
        if int(value[:12]) != self.seen:
            raise BenchError(f"expected message {self.seen}, got {value[:12]!r}")
        self.seen += 1

    def end(self) -> dict[str, Any]:
        assert self.span is not None
        return {"counted": self.records, **self.span.end()}


def message(number: int) -> bytes:
    return b"%012d" % number + b"x" * (VALUE_BYTES - 12)


async def _until(condition: Callable[[], Any], what: str) -> None:
    """Ask until it is so."""
    limit = time.monotonic() + IDLE_SECONDS_MAX
    while not await condition():
        if time.monotonic() > limit:
            raise BenchError(f"{what} not within {IDLE_SECONDS_MAX} s")
        await asyncio.sleep(POLL_SECONDS)


def rabbitmq(*, port: int, broker_pid: int, queue: str, records: int) -> dict[str, Any]:
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", port)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        persistent = pika.BasicProperties(delivery_mode=2)
        channel.tx_select()
        for number in range(records):
            channel.basic_publish("", queue, message(number), persistent)
        channel.tx_commit()
    return uvloop.run(_rabbitmq(parameters, broker_pid, queue, records))


async def _rabbitmq(parameters: Any, broker_pid: int, queue: str, records: int) -> dict[str, Any]:
    from pika.adapters.asyncio_connection import AsyncioConnection

    handler = Handler(records, broker_pid)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def fail(*reasons: object) -> None:
        if not done.done():
            done.set_exception(BenchError(f"RabbitMQ: {reasons}"))

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        try:
            handler.take(body)
        except BenchError as error:
            fail(error)
            return
        channel.basic_ack(method.delivery_tag)
        if handler.done:
            # The answer to this comes after everything that was acknowledged before it.
            channel.basic_qos(prefetch_count=AT_ONCE, callback=lambda _: done.set_result(None))

    def on_channel(channel: Any) -> None:
        channel.basic_qos(
            prefetch_count=AT_ONCE, callback=lambda _: channel.basic_consume(queue, on_message)
        )

    connection = AsyncioConnection(
        parameters,
        on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel),
        on_open_error_callback=fail,
        on_close_callback=fail,
        custom_ioloop=loop,
    )
    async with asyncio.timeout(IDLE_SECONDS_MAX):
        await done
    result = handler.end()
    closed = loop.create_future()
    connection.add_on_close_callback(lambda *_: closed.set_result(None))
    connection.close()
    await closed
    return result


def nats(*, port: int, broker_pid: int, queue: str, records: int) -> dict[str, Any]:
    return uvloop.run(_nats(port, broker_pid, queue, records))


async def _nats(port: int, broker_pid: int, queue: str, records: int) -> dict[str, Any]:
    import nats as nats_py

    connection = await nats_py.connect(f"nats://127.0.0.1:{port}")
    stream = connection.jetstream()
    await stream.add_stream(name=queue, subjects=[queue])
    for first in range(0, records, AT_ONCE):
        some = range(first, min(first + AT_ONCE, records))
        await asyncio.gather(*(stream.publish(queue, message(number)) for number in some))
    subscription = await stream.pull_subscribe(queue, durable="worker", stream=queue)
    handler = Handler(records, broker_pid)

    def pull() -> asyncio.Task[Any]:
        return asyncio.create_task(subscription.fetch(AT_ONCE, timeout=IDLE_SECONDS_MAX))

    coming = pull()
    while not handler.done:
        came = await coming
        if handler.seen + len(came) < records:
            coming = pull()
            await asyncio.sleep(0)  # The handler never waits; this lets the request out.
        for body in came:
            await handler.handle(body.data)
            await body.ack()
    await connection.flush()

    async def nothing_is_left() -> bool:
        about = await subscription.consumer_info()
        return about.num_ack_pending == 0 and about.num_pending == 0

    await _until(nothing_is_left, "every acknowledgement")
    result = handler.end()
    await connection.close()
    return result


def redis(*, port: int, broker_pid: int, queue: str, records: int) -> dict[str, Any]:
    return uvloop.run(_redis(port, broker_pid, queue, records))


async def _redis(port: int, broker_pid: int, queue: str, records: int) -> dict[str, Any]:
    from redis.asyncio import Redis

    async with Redis(host="127.0.0.1", port=port) as server:
        for first in range(0, records, AT_ONCE):
            pipeline = server.pipeline(transaction=False)
            for number in range(first, min(first + AT_ONCE, records)):
                pipeline.xadd(queue, {"value": message(number)})
            await pipeline.execute()
        await server.xgroup_create(queue, "workers", id="0")
        handler = Handler(records, broker_pid)
        came = await server.xreadgroup("workers", "worker", {queue: ">"}, count=AT_ONCE)
        while came:
            for _, fields in came[0][1]:
                await handler.handle(fields[b"value"])
            # The acknowledgement and the next read share a round trip.
            pipeline = server.pipeline(transaction=False)
            pipeline.xack(queue, "workers", *(id_ for id_, _ in came[0][1]))
            pipeline.xreadgroup("workers", "worker", {queue: ">"}, count=AT_ONCE)
            expected = len(came[0][1])
            accepted, came = await pipeline.execute()
            if accepted != expected:
                raise BenchError(f"expected {expected} accepted, got {accepted}")
        if not handler.done:
            raise BenchError(f"{handler.seen} of {records} messages are there")
        return handler.end()
