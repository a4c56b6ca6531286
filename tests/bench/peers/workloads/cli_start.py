"""What a short command costs: the whole process, from its start to its exit.

Both tools ask the same broker for its share groups, ours and Kafka's own, which has a virtual
machine to start: with the flags that suit a short run, and without the shell script around it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FSYNC, OS, Peer
from tests.bench.peers.lines import Against, Line, Measured, Scale
from tests.bench.peers.workloads.log import new_group
from tests.support.confluent_calls import create_topic, produce, share_consumer, take_shared
from tests.support.kafka_tools import run_tool_alone

GROUP_TOPIC = "group-to-be-listed"
COMMAND_SECONDS_MAX = 60.0
RUNS = 5
"""Of each command in a measurement; the median of so short a time needs some."""
KAFKAS = "kafka-share-groups --list, whole process, on our broker"


class CliStart:
    """Each round runs both commands in turn, some times."""

    name = "cli-start"
    title = "a short command"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS)
    warms_up: tuple[str, ...] = ()
    lines = (
        Line(
            what="sharegroup groups list, whole process",
            unit="s",
            higher_is_better=False,
            against=tuple(
                Against(ours=peer, rival=peer, line=KAFKAS, reach=1.0) for peer in (FSYNC, OS)
            ),
        ),
        Line(what=KAFKAS, unit="s", higher_is_better=False, against=()),
    )

    def __init__(self) -> None:
        self._groups: dict[str, str] = {}

    def prepare(self, peer: Peer, scale: Scale) -> str:
        """A group with a past: one that nobody joined would not be listed."""
        with peer.awake() as broker:
            create_topic(broker.bootstrap_servers, GROUP_TOPIC)
            produce(broker.bootstrap_servers, GROUP_TOPIC, [b"first"])
            self._groups[peer.name] = new_group(broker.bootstrap_servers)
            with share_consumer(
                broker.bootstrap_servers, self._groups[peer.name], GROUP_TOPIC
            ) as consumer:
                take_shared(consumer, 1)
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        group = self._groups[peer.name]
        with peer.awake() as broker:
            return tuple(
                timed(partial(command, broker.bootstrap_servers), group)
                for command in (our_command, kafkas_command)
            )


def our_command(bootstrap: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "sharegroup", "groups", "list", "--bootstrap-server", bootstrap],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )
    if done.returncode:
        raise BenchError(f"sharegroup groups list ended with {done.returncode}: {done.stderr}")
    return done.stdout


def kafkas_command(bootstrap: str) -> str:
    return run_tool_alone(
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *("--bootstrap-server", bootstrap, "--list"),
    )


def timed(command: Callable[[], str], group: str) -> Measured:
    """The median time of a command that lists the group, and its CPU time."""
    seconds: list[float] = []
    cpu_s: list[float] = []
    for _ in range(RUNS):
        begin, cpu_begin = time.perf_counter(), _children_cpu_seconds()
        printed = command()
        seconds.append(time.perf_counter() - begin)
        cpu_s.append(_children_cpu_seconds() - cpu_begin)
        if group not in printed.split():
            raise BenchError(f"expected group {group} in the list, got {printed!r}")
    return Measured(value=sorted(seconds)[RUNS // 2], client_cpu_s=sorted(cpu_s)[RUNS // 2])


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
