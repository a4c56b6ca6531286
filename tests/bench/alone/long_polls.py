"""Members that wait for records which do not come: what 100 of them cost the broker.

Each has ten partitions of its own group in its share session and asks for them again as soon as
its fetch comes back empty, after 500 ms as the clients' default is, and says every five seconds
that it lives.
"""

from __future__ import annotations

import select
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench.alone.figure import Figure
from tests.bench.alone.topic import make_topic
from tests.spec.connection import Connection
from tests.spec.member import Member
from tests.spec.messages import Topic
from tests.support.processes import ServeProcess

MEMBERS = 100
PARTITIONS = 10
WAIT_MS = 500
HEARTBEAT_SECONDS = 5.0
SECONDS = 20.0


def measure(members: int = MEMBERS, seconds: float = SECONDS) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-polls-") as folder, ExitStack() as stack:
        broker = stack.enter_context(ServeProcess(Path(folder) / "data", durability="os"))
        topic = make_topic(broker, "orders", PARTITIONS)
        polling = [_join(stack, broker, topic, f"group-{number}") for number in range(members)]
        _poll(polling, min(2.0, seconds))  # Sessions are open and share partitions loaded.
        before, began = broker.cpu_seconds(), time.monotonic()
        answers = _poll(polling, seconds)
        elapsed = time.monotonic() - began
        cpu = (broker.cpu_seconds() - before) / elapsed
        expected = members * elapsed * 1000 / WAIT_MS
        assert answers > 0.8 * expected, f"{answers} answers of about {expected:.0f}"
    what = f"{members} members long-polling {PARTITIONS} partitions each, with nothing to read"
    return [Figure(what=what, unit="% of a core", value=100 * cpu, at_most=10)]


def _join(stack: ExitStack, broker: ServeProcess, topic: Topic, group: str) -> tuple[Member, float]:
    """A member in its group, and when it spoke last, told apart over the interval."""
    member = Member(stack.enter_context(Connection(broker.port)), group).join(topic)
    assert len(member.assigned) == PARTITIONS
    return member, time.monotonic()


def _poll(polling: list[tuple[Member, float]], seconds: float) -> int:
    """Keep a fetch of each member under way; the number of answers."""
    waiting = {}
    for member, spoken in polling:
        waiting[member.connection.socket.fileno()] = (member, member.begin_fetch(WAIT_MS), spoken)
    watched = select.poll()
    for descriptor in waiting:
        watched.register(descriptor, select.POLLIN)
    answers, until = 0, time.monotonic() + seconds
    while waiting:
        for descriptor, _ in watched.poll(1_000):
            member, request, spoken = waiting.pop(descriptor)
            answer = member.finish_fetch(request)
            assert (answer.error, answer.acquired) == (0, [])
            answers += 1
            now = time.monotonic()
            if now > until:
                continue
            if now - spoken > HEARTBEAT_SECONDS:
                assert member.heartbeat().error_code == 0
                spoken = now
            waiting[descriptor] = (member, member.begin_fetch(WAIT_MS), spoken)
    return answers
