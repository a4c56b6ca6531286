"""How long 50 members take to share a topic of 1,000 partitions, from the first join on.

All join at once; then each says again and again that it lives, as fast as it is answered, until
it knows its own twenty partitions.  That nobody waits five seconds for his next heartbeat is what
makes it a measurement of the broker.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench.alone.figure import Figure
from tests.bench.alone.topic import make_topic
from tests.spec.connection import Connection
from tests.spec.member import Member
from tests.spec.messages import JOIN, Topic
from tests.support.processes import ServeProcess

MEMBERS = 50
PARTITIONS = 1_000


def measure(members: int = MEMBERS, partitions: int = PARTITIONS) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-join-") as folder, ExitStack() as stack:
        broker = stack.enter_context(ServeProcess(Path(folder) / "data"))
        topic = make_topic(broker, "orders", partitions)
        group = [
            Member(stack.enter_context(Connection(broker.port)), "billing") for _ in range(members)
        ]
        began, cpu = time.perf_counter(), broker.cpu_seconds()
        _share_out(group, topic)
        seconds = time.perf_counter() - began
        cpu = broker.cpu_seconds() - cpu
    what = f"a topic of {partitions:,} partitions, {members} members: join to all assigned"
    return [
        Figure(what=what, unit="s", value=seconds, at_most=1),
        Figure(what=what, unit="s of broker CPU", value=cpu),
    ]


def _share_out(group: list[Member], topic: Topic) -> None:
    for member in group:
        answer = member.heartbeat(epoch=JOIN, topics=[topic.name])
        assert answer.error_code == 0, answer
    each = topic.partition_count // len(group)
    rounds = 0
    while any(len(member.assigned) != each for member in group):
        rounds += 1
        assert rounds < 100, "they never agree"
        for member in group:
            if len(member.assigned) != each:
                assert member.heartbeat().error_code == 0
    held = [partition for member in group for partition in member.assigned]
    assert len(set(held)) == len(held) == topic.partition_count
