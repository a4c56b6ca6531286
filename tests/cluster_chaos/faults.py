"""Carries the plan out on a cluster, and writes down when each fault began and was undone."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.cluster_chaos.moves import carry_out, choose_moves
from tests.cluster_chaos.plan import WITHOUT_MAJORITY, Fault, Kind
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_peer import KafkaPeerError

INTERNAL = ("__consumer_offsets", "__share_group_state")
PATIENCE_SECONDS = 20.0
"""How long a fault waits for the other nodes to answer; then it comes all the same."""
LOOK_SECONDS = 0.1


class Done(NamedTuple):
    """A fault that was carried out; times of the monotonic clock."""

    fault: Fault
    begun: float
    undone: float
    remark: str
    """What was moved or killed, or why it could not be done."""


@dataclass
class Faults:
    """One trial's faults; `run` is called in a thread of its own."""

    cluster: KafkaCluster
    topics: Sequence[str]
    """Those whose leaders are moved."""
    kill_client: Callable[[random.Random], str]
    say: Callable[[str], None] = lambda line: None
    done: list[Done] = field(default_factory=list)
    ended: list[tuple[int, float]] = field(default_factory=list)
    """Nodes that ended by themselves, and when that was seen."""

    def run(self, plan: Sequence[Fault], stopping: threading.Event) -> None:
        """Everything, in order; each fault is undone before the next one."""
        first = time.monotonic()
        for fault in plan:
            if stopping.wait(max(0.0, first + fault.at - time.monotonic())):
                return
            self._start_ended_nodes()
            self._wait_for_others(fault)
            begun = time.monotonic()
            remark = self._attempt(self._begin, fault)
            stopping.wait(fault.seconds)
            remark += self._attempt(self._undo, fault)
            done = Done(fault, begun, time.monotonic(), remark)
            self.done.append(done)
            self.say(
                f"fault {fault.index} at {begun - first:.0f} s: {fault.kind} {fault.nodes} for "
                f"{done.undone - begun:.1f} s {remark}"
            )

    def _attempt(self, step: Callable[[Fault], str], fault: Fault) -> str:
        """A fault that can't be carried out because of the one before is told, and no more."""
        try:
            return step(fault)
        except (KafkaPeerError, OSError, TimeoutError) as error:
            return f"failed: {error!r}"[:200]

    def _begin(self, fault: Fault) -> str:
        match fault.kind:
            case Kind.KILL | Kind.KILL_TWO:
                for node in fault.nodes:
                    self.cluster.kill(node)
            case Kind.STOP:
                self.cluster.stop(fault.nodes[0])
            case Kind.FREEZE | Kind.FREEZE_TWO:
                for node in fault.nodes:
                    self.cluster.freeze(node)
            case Kind.MOVE_LEADERS:
                return self._move(self.topics, fault)
            case Kind.MOVE_COORDINATORS:
                return self._move(INTERNAL, fault)
            case Kind.KILL_CLIENT:
                return self.kill_client(random.Random(fault.draw))
            case _:
                self._isolate(fault)
        return ""

    def _isolate(self, fault: Fault) -> None:
        node, *others = fault.nodes
        match fault.kind:
            case Kind.ISOLATE_ALL:
                for cut in fault.nodes:
                    self.cluster.isolate(cut)
            case Kind.ISOLATE_OUT:
                self.cluster.isolate(node, incoming=False)
            case Kind.ISOLATE_IN:
                self.cluster.isolate(node, outgoing=False)
            case Kind.ISOLATE_CLIENTS:
                self.cluster.isolate(node, clients=True)
            case Kind.RESET:
                self.cluster.isolate(node, clients=True, reset=True)
            case _:
                assert fault.kind in {Kind.ISOLATE, Kind.ISOLATE_PAIR}, fault
                self.cluster.isolate(node, *others)

    def _undo(self, fault: Fault) -> str:
        cluster = self.cluster
        match fault.kind:
            case Kind.KILL | Kind.KILL_TWO | Kind.STOP:
                for node in fault.nodes:
                    cluster.start(node, wait=False)
            case Kind.FREEZE | Kind.FREEZE_TWO:
                for node in fault.nodes:
                    cluster.thaw(node)
            case Kind.MOVE_LEADERS | Kind.MOVE_COORDINATORS | Kind.KILL_CLIENT:
                pass
            case _:
                cluster.heal()
        return ""

    def _move(self, topics: Sequence[str], fault: Fault) -> str:
        limit = time.monotonic() + PATIENCE_SECONDS
        while True:
            view = self.cluster.view()
            moves = choose_moves(view, topics, random.Random(fault.draw))
            if moves or time.monotonic() > limit:  # No other replica may be in sync yet.
                break
            time.sleep(LOOK_SECONDS)
        healthy = [node for node in view.brokers if self._answers(node)]
        if not healthy:
            return "nobody to ask"
        carry_out(self.cluster.address_of(healthy[0]), moves)
        return f"{len(moves)} partitions"

    def _wait_for_others(self, fault: Fault) -> None:
        """Keep a majority most of the time: wait for the nodes that a fault leaves alone."""
        if fault.kind in WITHOUT_MAJORITY:
            return
        others = [node for node in self.cluster.nodes if node not in fault.nodes]
        limit = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < limit and not all(map(self._answers, others)):
            time.sleep(LOOK_SECONDS)

    def _answers(self, node: int) -> bool:
        if not self.cluster.is_running(node):
            return False
        try:
            self.cluster.view(node)
        except KafkaPeerError:
            return False
        return True

    def _start_ended_nodes(self) -> None:
        for node in self.cluster.all_nodes:
            if not self.cluster.is_running(node):
                self.ended.append((node, time.monotonic()))
                self.say(f"node {node} ended by itself: {self.cluster.log_of(node)}")
                self.cluster.kill(node)  # Forgets the process that has ended.
                self.cluster.start(node, wait=False)
