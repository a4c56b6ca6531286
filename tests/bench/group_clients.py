"""The clients of `tests.bench.group_start`: each joins a new group and tells when it got a record.

The times are readings of the monotonic clock in nanoseconds, which all processes share.  A topic
that begins with "^" is a regular expression.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import Consumer as ConfluentConsumer

from sharegroup.client import Consumer
from tests.bench.client_process import in_process
from tests.bench.failure import BenchError
from tests.interop.line_programs import line_program

WAIT_SECONDS_MAX = 30.0


class Joined(NamedTuple):
    """When a client called subscribe, and when it had its first record."""

    subscribed_ns: int
    first_ns: int


Join = Callable[[str, str, str], Joined]
"""Joins a new group: its name, the topic, the group protocol."""


def confluent(*, bootstrap: str, group: str, topic: str, protocol: str) -> dict[str, Any]:
    """In the client's process: confluent-kafka."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    subscribed = time.monotonic_ns()
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_SECONDS_MAX)
    first = time.monotonic_ns()
    consumer.close()
    if message is None or message.error() is not None:
        raise BenchError(f"expected a record in {WAIT_SECONDS_MAX} s, got {message}")
    return {"subscribed_ns": subscribed, "first_ns": first}


def ours(*, bootstrap: str, group: str, topic: str, protocol: str) -> dict[str, Any]:
    """In the client's process: our plain consumer."""
    return asyncio.run(_ours(bootstrap, group, topic, protocol))


async def _ours(bootstrap: str, group: str, topic: str, protocol: str) -> dict[str, Any]:
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    )
    async with consumer:
        subscribed = time.monotonic_ns()
        if not topic.startswith("^"):
            consumer.subscribe(topic)
        elif protocol == "classic":
            consumer.subscribe(pattern=re.compile(topic))
        else:
            consumer.subscribe(pattern=topic)
        records = await consumer.poll(timeout=WAIT_SECONDS_MAX)
        first = time.monotonic_ns()
    if not records:
        raise BenchError(f"expected a record in {WAIT_SECONDS_MAX} s, got none")
    return {"subscribed_ns": subscribed, "first_ns": first}


@contextmanager
def clients(bootstrap: str) -> Iterator[Mapping[str, Join]]:
    """All clients of a broker; those of Java share one virtual machine."""

    def joins_by(client: Callable[..., dict[str, Any]]) -> Join:
        def join(group: str, topic: str, protocol: str) -> Joined:
            arguments = {"group": group, "topic": topic, "protocol": protocol}
            return Joined(**in_process(client, bootstrap=bootstrap, **arguments))

        return join

    with line_program("java", "GroupStart", bootstrap) as java:
        assert java.stdin is not None
        assert java.stdout is not None
        commands, answers = java.stdin, java.stdout

        def java_join(group: str, topic: str, protocol: str) -> Joined:
            commands.write(f"{group}\t{topic}\t{protocol}\n")
            commands.flush()
            answer = answers.readline()
            if not answer:
                raise BenchError(f"the Java client ended in group {group} ({protocol}, {topic})")
            subscribed, first = answer.split("\t")
            return Joined(int(subscribed), int(first))

        yield {"librdkafka": joins_by(confluent), "our Consumer": joins_by(ours), "Java": java_join}
