"""Connections and brokers that close while the first request of a type waits for imports.

A fresh process, because the imports of other tests would leave nothing to wait for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta

from kio.schema.produce.v12 import request as produce

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.codec.apis import APIS, request_class
from sharegroup.wire.codec.encoder import encode_request
from tests.faults.tokens import full_message
from tests.support.limits import HANGING_SECONDS

CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE = 68, 76, 77

PROGRAM = """
import asyncio, gc, json, sys, tempfile
from contextlib import suppress
from sharegroup.broker import app
from sharegroup.broker.configuration.config import Config

produced, first, second, third = (bytes.fromhex(text) for text in json.load(sys.stdin))
found, trouble = {}, []

async def until(condition):
    while not condition():
        await asyncio.sleep(0)

async def sent(running, frame):
    # Sends a request; returns when the imports for it have begun.
    parts = running.parts
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.node.port)
    writer.write(frame)
    await until(lambda: len(parts.slices))
    await asyncio.sleep(0)  # A slice.
    return reader, writer

async def answer(reader):
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

async def main(folder):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: trouble.append(str(context)))
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder}
    running = await app.start(Config.parse(settings | {"sharegroup.durability": "os"}))
    parts = running.parts

    topic = await parts.topics.create("orders", partitions=1, settings={})
    _, writer = await sent(running, produced)
    writer.close()
    await until(lambda: not running.server.connection_count)
    found["produced"] = parts.topics.log_of(topic, 0).end_offset

    _, writer = await sent(running, first)
    prepared_before = len(parts.prepared)
    writer.close()
    await until(lambda: not len(parts.slices) and not parts.late_requests.waiting)
    found["kept"] = len(parts.prepared) > prepared_before  # As in Kafka, it is decided.
    await until(lambda: not running.server.connection_count)

    pairs = [await asyncio.open_connection("127.0.0.1", parts.node.port) for _ in range(2)]
    for _, writer in pairs:
        writer.write(first)
    answers = [await answer(reader) for reader, _ in pairs]
    found["alike"] = answers[0] == answers[1]

    one, kept = await sent(running, second)
    other, writer = await asyncio.open_connection("127.0.0.1", parts.node.port)
    writer.write(second)
    found["alike while importing"] = await answer(one) == await answer(other)

    reader, kept = await sent(running, third)
    await running.stop()
    with suppress(ConnectionResetError):
        await reader.read()  # Nothing, or the answer: a stop lets requests end for a moment.
    found["closed"] = reader.at_eof() or reader.exception() is not None
    gc.collect()  # An exception that nobody retrieved is told when its future goes.
    await asyncio.sleep(0)
    found["trouble"] = trouble

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
print(json.dumps(found))
"""


BATCH = bytes(encode_batch([SimpleRecord(b"k", b"v", 0)]))

PRODUCED = b"".join(
    encode_request(
        1,
        "c",
        produce.ProduceRequest(
            transactional_id=None,
            acks=0,  # The client waits for nothing, and loses records that are not kept.
            timeout=timedelta(seconds=1),
            topic_data=(
                produce.TopicProduceData(
                    name="orders",
                    partition_data=(produce.PartitionProduceData(index=0, records=BATCH),),
                ),
            ),
        ),
    )
).hex()


def frame_of(api_key: int) -> str:
    message = full_message(request_class(api_key, APIS[api_key].newest))
    return b"".join(encode_request(1, "c", message)).hex()


def test_requests_that_wait_for_imports_are_decided_when_their_connection_closes() -> None:
    """Two connections that wait for the same imports both get the answer."""
    frames = [PRODUCED] + [
        frame_of(key)
        for key in (CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_GROUP_HEARTBEAT)
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(frames),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGING_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "kept": True,
        "produced": 1,
        "alike": True,
        "alike while importing": True,
        "closed": True,
        "trouble": [],
    }
