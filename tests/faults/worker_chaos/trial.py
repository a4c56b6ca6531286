"""One trial, from an empty folder to the verdict."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sharegroup.schedules.schedule import RUN_HEADER
from tests.faults.worker_chaos.commands_verdict import (
    judge_answers,
    judge_exits,
    judge_runs,
    judge_waiting,
    judge_workers,
)
from tests.faults.worker_chaos.journal import Line, read
from tests.faults.worker_chaos.keyed import judge_keyed, judge_outputs
from tests.faults.worker_chaos.names import (
    CANCELLED,
    EXACT,
    LATER,
    OUTPUTS,
    PLAIN,
    SINK,
    TICKS,
)
from tests.faults.worker_chaos.records import DEAD, records
from tests.faults.worker_chaos.stage import BROKER, Plan, Stage
from tests.faults.worker_chaos.topics import read_all, read_topics
from tests.faults.worker_chaos.verdict import Verdict, verdict
from tests.support.chosen_broker import SHORT_TIMES, chosen, running


@dataclass(frozen=True, slots=True)
class Size:
    """How large a trial is."""

    records: int
    """Of the share group."""
    keyed: int
    """Of the two consumer groups."""
    workers: int
    worker_kills: int
    broker_kills: int
    freezes: int
    cuts: int
    """Workers that end themselves in the middle of a transaction."""
    exiting: int
    """Records that kill their worker in each delivery."""
    send_seconds: float
    finish_seconds_max: float = 120.0
    punctual: bool = True
    """Late retries are a problem; only where the machine does nothing else."""


SHORT = Size(
    2_000, keyed=2_000, workers=3, worker_kills=1, broker_kills=1, freezes=1, cuts=2, exiting=0,
    send_seconds=20, finish_seconds_max=240, punctual=False,
)  # fmt: skip
LONG = Size(
    20_000, keyed=20_000, workers=6, worker_kills=8, broker_kills=4, freezes=4, cuts=16, exiting=4,
    send_seconds=200, finish_seconds_max=300,
)  # fmt: skip


SETTINGS = {
    **SHORT_TIMES,
    "num.partitions": "4",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.session.timeout.ms": "5000",
    "group.share.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "3000",
}
"""A partition may belong to one member alone.  When that is killed, nobody reads the partition
until the member's session is over: 45 s by default, and too long for a trial."""
OPEN_SECONDS = 20.0
"""The transaction of a dead process is aborted within this time."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a trial."""

    verdict: Verdict
    """Of the share group; its problems are those of all parts."""
    worker_deaths: int
    broker_deaths: int
    beside: list[str]
    """What the other parts did, in words."""


def run(size: Size, seed: int, folder: Path) -> Report:
    """Play it and judge it."""
    plan = Plan(
        records=records(size.records, size.exiting),
        keyed=size.keyed,
        workers=size.workers,
        worker_kills=size.worker_kills,
        broker_kills=size.broker_kills,
        freezes=size.freezes,
        cuts=size.cuts,
        send_seconds=size.send_seconds,
        finish_seconds_max=size.finish_seconds_max,
        seed=seed,
    )
    with running(chosen(), folder / "broker", SETTINGS) as broker:
        stage = Stage(folder, plan, broker)
        asyncio.run(stage.play())
        topics, beside = read_topics(broker.bootstrap_servers), read_beside(stage)
    found = verdict(
        plan.records,
        read(stage.journals),
        [*stage.deaths, *stage.frozen, *stage.taken_for_dead()],
        topics,
        punctual=size.punctual,
        calm_at=stage.calm_at,
    )
    lines = {group: read(stage.journals / group) for group in (PLAIN, EXACT, SINK, TICKS, LATER)}
    words: list[str] = []
    found.problems += judge_beside(stage, beside, lines, words)
    broker_deaths = sum(death.pid == BROKER for death in stage.deaths)
    return Report(found, len(stage.deaths) - broker_deaths, broker_deaths, words)


@dataclass(frozen=True, slots=True)
class Beside:
    """What the topics of the other parts hold."""

    outputs: list[str]
    runs: Counter[str]
    cancelled: set[int]
    letters: list[str]
    """Records that are dead letters, and should not be."""


def read_beside(stage: Stage) -> Beside:
    bootstrap = stage.broker.bootstrap_servers
    outputs = _outputs(bootstrap)
    if len(outputs) < stage.plan.keyed:
        time.sleep(OPEN_SECONDS)
        outputs = _outputs(bootstrap)
    ticks = read_all(bootstrap, lambda name: name == TICKS)
    dead = read_all(bootstrap, lambda name: name.startswith("chaos.") and name.endswith(".dead"))
    return Beside(
        outputs,
        Counter(dict(tick.headers() or ())[RUN_HEADER].decode() for tick in ticks),
        {int(letter.key()) for letter in dead if letter.topic() == CANCELLED},
        [
            f"{letter.topic()} has {letter.key()!r}: {dict(letter.headers() or ())}"
            for letter in dead
            if letter.topic() not in (DEAD, CANCELLED)
        ],
    )


def _outputs(bootstrap: str) -> list[str]:
    # A value is JSON: a text with its quotes.
    found = read_all(bootstrap, lambda name: name == OUTPUTS)
    return [message.value().decode().strip('"') for message in found]


def judge_beside(
    stage: Stage, beside: Beside, lines: dict[str, list[Line]], words: list[str]
) -> Iterator[str]:
    """Everything but the share group: its problems, and what happened, in ``words``."""
    given, commander = stage.commander.given, stage.commander
    for group in (PLAIN, EXACT):
        keyed = judge_keyed(lines[group], stage.plan.keyed)
        words.append(f"{group:20} finished {keyed.finished}, runs repeated {keyed.repeated}")
        yield from (f"{group}: {problem}" for problem in keyed.problems)
    yield from judge_outputs(
        [int(output.partition(" ")[0]) for output in beside.outputs], stage.plan.keyed
    )
    sunk = {line.error for line in lines[SINK]}
    yield from (f"output {output} was not handled" for output in {*beside.outputs} - sunk)
    yield from (f"output {output} was aborted, and handled" for output in sunk - {*beside.outputs})
    yield from (f"{letter}; nothing of it fails for ever" for letter in beside.letters)
    yield from commander.problems
    yield from judge_answers(given)
    wall_offset = time.time() - time.monotonic()
    handled = {line.error for line in lines[TICKS]}
    yield from judge_runs(beside.runs, handled, given, wall_offset)
    begins: dict[int, list[float]] = {}
    for line in chain.from_iterable(lines.values()):
        if line.what == "begin":
            begins.setdefault(line.pid, []).append(line.at)
    yield from judge_workers(given, begins, stage.ended)
    yield from judge_exits(given, stage.ended)
    yield from judge_waiting(commander.sent, lines[LATER], beside.cancelled, given)
    words.append(f"runs of schedules    {beside.runs.total()}")
    words.append(f"waiting records      {len(commander.sent)}")
    counts = Counter((command.what, command.outcome) for command in given)
    words.append(
        "commands             "
        + ", ".join(f"{what} {end} {count}" for (what, end), count in sorted(counts.items()))
    )
