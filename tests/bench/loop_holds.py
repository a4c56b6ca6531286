"""For how long the largest requests hold the event loop: `python -m tests.bench.loop_holds [NAME]`.

Every array of every request is made as long as `ELEMENTS_MAX` allows, one array at a time, and sent
to a broker in this process that has a topic of 20,000 partitions and a share group that reads it.
A line has the longest turn of the event loop (all callbacks between two looks at the sockets, in
milliseconds of processor time) from the request's arrival to its answer: without the collections of
garbage in it, and the longest with them, as in `sharegroup serve`.  Then the whole time.

`tests.bench.job_turns` measures the broker's own work in the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest

from sharegroup.broker import app
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.handler_contract import CloseConnection
from sharegroup.broker.load.garbage import GarbagePolicy
from sharegroup.broker.server.dispatch import ELEMENTS_MAX, dispatch, prepare_steps
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.steps import run_to_end
from sharegroup.wire.codec.apis import APIS, request_class
from sharegroup.wire.codec.encoder import encode_request
from sharegroup.wire.codec.schema import MessageField, message_fields
from tests.faults.in_process import Broker, ShareMember
from tests.faults.tokens import full_message

PARTITIONS = 20_000
ANSWER_SECONDS_MAX = 60
NUMBERS = ("partition", "partition_index", "index", "partition_id")
NAMES = ("name", "topic", "topic_name")
GROUPS = ("group_id", "group")


class Turns:
    """The turns of an event loop, measured between two looks at its sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.longest = self.longest_with_garbage = 0.0
        self._began = time.thread_time()
        self._collecting = self._collection_began = 0.0
        selector = loop._selector  # type: ignore[attr-defined]
        select = selector.select

        def measured(timeout: float | None = None) -> Any:
            seconds = time.thread_time() - self._began
            self.longest = max(self.longest, seconds - self._collecting)
            self.longest_with_garbage = max(self.longest_with_garbage, seconds)
            events = select(timeout)
            self._collecting = 0.0
            self._began = time.thread_time()
            return events

        selector.select = measured
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collection_began = now
        else:
            self._collecting += now - self._collection_began

    async def of(self, work: Any) -> None:
        """Note the longest turns, in seconds, while ``work`` is awaited."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.longest = self.longest_with_garbage = 0.0
        await work
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def wide_requests(cls: type[Any], topic_id: UUID | None) -> Iterator[tuple[str, Any]]:
    """(path of the long array, request) for every array of a request."""
    message = _named(full_message(cls), topic_id)
    for path, depth in _arrays(cls):
        count = (ELEMENTS_MAX - 20) // depth
        yield ".".join(path), _widened(message, path, min(count, PARTITIONS))


def _arrays(cls: type[Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """The paths of all arrays, each with the elements that one element of it has in all."""
    for field in message_fields(cls):
        if field.is_array and field.kafka_type != "int8":
            yield (*above, field.name), 1 + _inner(field)
        if field.entity is not None:
            yield from _arrays(field.entity, (*above, field.name))


def _inner(field: MessageField) -> int:
    if field.entity is None:
        return 0
    fields = message_fields(field.entity)
    return sum(1 + _inner(inner) for inner in fields if inner.is_array)


def _named(message: Any, topic_id: UUID | None) -> Any:
    """The message with names of what exists."""
    changed: dict[str, Any] = {}
    for field in message_fields(type(message)):
        value = getattr(message, field.name)
        if field.entity is not None:
            inner = value if field.is_array else (value,)
            found = tuple(_named(name, topic_id) for name in inner)
            changed[field.name] = found if field.is_array else found[0]
        elif field.name in NAMES and not field.is_array:
            changed[field.name] = "wide"
        elif field.name in GROUPS and not field.is_array:
            changed[field.name] = "g"
        elif field.name == "topic_id":
            changed[field.name] = topic_id
        elif field.name == "timestamp":
            changed[field.name] = -1
        elif "epoch" in field.name and field.kafka_type == "int32":
            changed[field.name] = 0
    return replace(message, **changed)


def _widened(message: Any, path: tuple[str, ...], count: int) -> Any:
    field = next(f for f in message_fields(type(message)) if f.name == path[0])
    value = getattr(message, path[0])
    if len(path) > 1:
        if field.is_array:
            inner: Any = (_widened(value[0], path[1:], count),)
        else:
            inner = _widened(value, path[1:], count)
        return replace(message, **{path[0]: inner})
    return replace(message, **{path[0]: tuple(_element(field, value[0], n) for n in range(count))})


def _element(field: MessageField, element: Any, number: int) -> Any:
    if field.entity is None:
        return (
            f"{field.name}-{number}" if field.kafka_type == "string" else _scalar(element, number)
        )
    changed: dict[str, Any] = {}
    for inner in message_fields(field.entity):
        if inner.name in NUMBERS and not inner.is_array:
            changed[inner.name] = number
        elif inner.kafka_type == "string" and not inner.is_array:
            changed[inner.name] = f"{inner.name}-{number}"
        elif inner.kafka_type == "uuid" and not inner.is_array:
            changed[inner.name] = UUID(int=number + 1)
    return replace(element, **changed)


def _scalar(element: Any, number: int) -> Any:
    return number if isinstance(element, int) else UUID(int=number + 1)


async def answered(broker: Broker, frame: memoryview) -> int:
    """The bytes of the answer; -1: the connection was closed."""
    try:
        reply = dispatch(
            broker.running.parts, handler_of, frame, connection_id=1, peer=Peer("127.0.0.1")
        )
        if isinstance(reply, asyncio.Future):
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                reply = await reply
    except CloseConnection:
        return -1
    return sum(map(len, reply))


async def measure(wanted: str | None) -> None:
    turns = Turns(asyncio.get_running_loop())
    policy = GarbagePolicy()
    policy.start()
    looking = asyncio.create_task(policy.run())
    with tempfile.TemporaryDirectory() as folder:
        values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder}
        values |= {"sharegroup.share.state.apis.enable": "true"}
        broker = Broker(await app.start(Config.parse(values)), None)  # type: ignore[arg-type]
        broker.ask = _asking(broker)  # type: ignore[method-assign]
        try:
            print(
                f"{'request':32}{'long array':50}{'longest turn':>14}{'and garbage':>14}"
                f"{'in all':>12}{'answer':>14}"
            )
            _prepare(broker)
            member = await _joined(broker, turns)
            topic_id = await broker.topic_id("wide")
            for key, api in APIS.items():
                if api.name == "AlterShareGroupOffsets":  # It is for groups without members.
                    member.member_epoch = -1
                    await member.heartbeat(broker)
                if wanted is not None and wanted.lower() != api.name.lower():
                    continue
                for path, message in wide_requests(request_class(key, api.newest), topic_id):
                    if key == 20 and not path:
                        continue
                    await _line(broker, turns, api.name, path, message)
            message = _named(full_message(DeleteShareGroupOffsetsRequest), topic_id)
            await _line(broker, turns, "DeleteShareGroupOffsets", "of the wide topic", message)
        finally:
            looking.cancel()
            await broker.stop()


def _prepare(broker: Broker) -> None:
    """Import now what the first request of its kind would have to wait for."""
    for key, api in APIS.items():
        run_to_end(prepare_steps(broker.running.parts.prepared, handler_of, key, api.newest))
    assert broker.running.parts.classic_group_coordinator is not None


async def _joined(broker: Broker, turns: Turns) -> ShareMember:
    began = time.perf_counter()
    await turns.of(broker.create_topic("wide", PARTITIONS - 100))
    _print("CreateTopics", "one wide topic", turns, began, 0)
    began = time.perf_counter()
    member = ShareMember("g", "member-1", "wide", PARTITIONS, connection_id=1)
    await turns.of(member.heartbeat(broker))
    _print("ShareGroupHeartbeat", "joins the wide topic", turns, began, 0)
    return member


async def _line(broker: Broker, turns: Turns, name: str, path: str, message: Any) -> None:
    size = 0
    frame = memoryview(b"".join(encode_request(1, "bench", message))[4:])

    async def work() -> None:
        nonlocal size
        size = await answered(broker, frame)

    began = time.perf_counter()
    try:
        await turns.of(work())
    except TimeoutError:
        size = -2
    _print(name, path, turns, began, size)


def _print(name: str, path: str, turns: Turns, began: float, size: int) -> None:
    seconds = time.perf_counter() - began
    print(
        f"{name:32}{path:50}{turns.longest * 1000:11.1f} ms"
        f"{turns.longest_with_garbage * 1000:11.1f} ms{seconds * 1000:9.0f} ms{size:12} B",
        flush=True,
    )


def _asking(broker: Broker) -> Any:
    """`Broker.ask` without a clock that has to be moved."""
    from sharegroup.wire.codec.apis import response_class, response_header_version
    from sharegroup.wire.codec.decoder import decode
    from sharegroup.wire.codec.headers import decode_response_header

    async def ask(message: Any, connection_id: int = 1) -> Any:
        frame = memoryview(b"".join(encode_request(1, "bench", message))[4:])
        reply = dispatch(
            broker.running.parts,
            handler_of,
            frame,
            connection_id=connection_id,
            peer=Peer("127.0.0.1"),
        )
        chunks = await reply if isinstance(reply, asyncio.Future) else reply
        data = b"".join(chunks)[4:]
        key, version = message.__api_key__, message.__version__
        _, position = decode_response_header(data, response_header_version(key, version))
        return decode(response_class(key, version), data, position)[0]

    return ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", help="only this request")
    asyncio.run(measure(parser.parse_args().name))


if __name__ == "__main__":
    main()
