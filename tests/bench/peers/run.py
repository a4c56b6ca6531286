"""Pairs, one after the other: every peer measures a workload once, then every peer again.

Our two durabilities and their rivals take turns within a round, always in the same order, so that
each figure of ours has a rival's beside it that is as old.  A workload that fails is told and not
counted; the others go on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.bench.failure import BenchError
from tests.bench.peers import queues
from tests.bench.peers.brokers import (
    FLUSHED,
    FSYNC,
    FSYNC_TLS,
    KAFKA,
    KAFKA_TLS,
    OS,
    OS_TLS,
    ApacheKafka,
    ApacheKafkaTls,
    Ours,
    OursTls,
    Peer,
)
from tests.bench.peers.lines import Measured, Scale, Workload
from tests.bench.peers.results import entry
from tests.support import kafka_peer
from tests.support.processes import ServeProcessError

FACTORIES: Mapping[str, Callable[[Path], Peer]] = {
    FSYNC: lambda folder: Ours(folder, "fsync"),
    OS: lambda folder: Ours(folder, "os"),
    KAFKA: ApacheKafka,
    FLUSHED: lambda folder: ApacheKafka(folder, flushes=True),
    FSYNC_TLS: lambda folder: OursTls(folder, "fsync", name=FSYNC_TLS),
    OS_TLS: lambda folder: OursTls(folder, "os", name=OS_TLS),
    KAFKA_TLS: ApacheKafkaTls,
    **{name: lambda folder, name=name: queues.Queue(name, folder) for name in queues.KINDS},
}
FAILURES = (
    *(BenchError, kafka_peer.KafkaPeerError, ServeProcessError),
    *(OSError, TimeoutError, subprocess.TimeoutExpired, KafkaException, AssertionError),
)
"""What a workload that went wrong raises: of ours, of the clients, and of what they wait for."""
ROUNDS_MAX = {FLUSHED: 2}
"""In how many rounds a peer takes part whose comparisons are only told; others take part in all."""
WARM_UPS = {KAFKA: 2, KAFKA_TLS: 2}
"""How often a peer measures uncounted before; others once.  A compiler that is not done with a
workload makes the first pairs look better for us than the last."""
Missing = Callable[[str], str | None]


def why_missing(name: str) -> str | None:
    """Why a peer can't take part here, or None when it can."""
    if name in (KAFKA, FLUSHED, KAFKA_TLS):
        return kafka_peer.why_missing()
    return queues.why_missing(name) if name in queues.KINDS else None


class Stage:
    """The peers of a run, each made when a workload first asks for it."""

    def __init__(
        self,
        folder: Path,
        factories: Mapping[str, Callable[[Path], Peer]] = FACTORIES,
        missing: Missing = why_missing,
    ) -> None:
        self._folder = folder
        self._factories = factories
        self._missing = missing
        self._peers: dict[str, Peer] = {}
        self._skipped: set[str] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def peers(self, names: Sequence[str]) -> list[Peer]:
        """Those of the names that can take part; of each other one, a line once."""
        found = []
        for name in names:
            if name in self._peers:
                found.append(self._peers[name])
            elif (reason := self._missing(name)) is None:
                self._peers[name] = self._factories[name](self._folder)
                self._stack.callback(self._peers[name].end)
                found.append(self._peers[name])
            elif name not in self._skipped:
                self._skipped.add(name)
                say(f"skipped {name}: {reason}")
        return found


def run(
    stage: Stage,
    chosen: Sequence[Workload],
    scale: Scale,
    pairs: Callable[[Workload], int],
    about: Mapping[str, Any],
    *,
    warm: bool = True,
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Each workload's name and what is kept of it; None where it failed."""
    for workload in chosen:
        begin = time.monotonic()
        try:
            found = run_one(stage, workload, scale, pairs(workload), about, warm=warm)
        except FAILURES as error:
            say(f"FAILED {workload.name} {workload.title}: {type(error).__name__}: {error}")
            yield workload.name, None
            continue
        say(f"{workload.name} {workload.title}: took {time.monotonic() - begin:.0f} s")
        yield workload.name, {**found, "seconds": round(time.monotonic() - begin)}


def run_one(
    stage: Stage,
    workload: Workload,
    scale: Scale,
    pairs: int,
    about: Mapping[str, Any],
    *,
    warm: bool,
) -> dict[str, Any]:
    peers = stage.peers(workload.peers)
    notes = [workload.prepare(peer, scale) for peer in peers]
    for peer in peers:
        if warm and peer.name in workload.warms_up:
            for _ in range(WARM_UPS.get(peer.name, 1)):
                measure(workload, peer, scale)
            say(f"{workload.name} warmed up {peer.name}")
    rounds: dict[str, list[list[Measured | None]]] = {
        peer.name: [[] for _ in workload.lines] for peer in peers
    }
    for number in range(1, pairs + 1):
        for peer in peers:
            if number > ROUNDS_MAX.get(peer.name, pairs):
                continue
            measured = measure(workload, peer, scale)
            for line, values, figure in zip(
                workload.lines, rounds[peer.name], measured, strict=True
            ):
                values.append(figure)
                if figure is not None:
                    where = f"{workload.name} {number}/{pairs} {peer.name:22}"
                    say(f"{where} {figure.value:14,.3f} {line.unit}  {line.what}")
    durabilities = {peer.name: peer.durability for peer in peers}
    kept = {"notes": [note for note in notes if note], "durability": durabilities}
    return entry(workload, rounds, {**about, **kept, "rounds": pairs})


def measure(workload: Workload, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
    """One measurement of one peer, on a disk that has nothing to do.

    What a broker leaves in the system's memory goes to the disk half a minute later, when another
    one is being measured; a broker that waits for the disk would pay for one that does not.
    """
    os.sync()
    return workload.measure(peer, scale)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
