"""The fuzzer without sockets: as many frames as one process can make and serve."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from sharegroup.broker.handler_contract import HandlerOf
from sharegroup.broker.server.handler_table import handler_of
from tests.fuzz.engine import CONNECTIONS, Engine, Finding, Step
from tests.fuzz.findings import CASES, minimised
from tests.fuzz.frames import Frame, FrameMaker
from tests.support.processes import rss_bytes

LIFE_FRAMES = 100_000
"""Frames of one life of a broker; then its topics, groups and files are thrown away."""
HISTORY_STEPS = 4_096
"""The last steps of a life that are kept to show a finding again."""
CROWDED_SECONDS = 0.001
CROWDED_TURNS_MAX = 100
"""When the broker reads from no connection for so many times so long, one is closed."""
CALM_CONNECTIONS = 1
"""Connections with honest members, on which no frame is sent that may be refused."""
STEP_FRAMES_MAX = 16
GOES_ON_SHARE = 0.85
"""How often another frame follows in the same step; a frame that may be refused is the last one."""
CALM_GOES_ON_SHARE = 0.6
CHECKED_SHARE = 0.1
TEACHING = {1, 11, 22, 68, 76}
"""Answers to these have ids that later requests name: more of them are read."""
TEACHING_SHARE = 0.4
GROWTH_BYTES_MAX = 612 << 20


@dataclass
class Totals:
    """What a run did; ``frames`` are those that the broker decoded or refused, by its own count."""

    sent: int = 0
    reached: int = 0
    """Requests that were decoded and answered by a handler."""
    refused: int = 0
    answers: int = 0
    checked: int = 0
    lives: int = 0
    stuck: int = 0
    """Connections that were given up because their requests waited."""
    probes: list[float] = field(default_factory=list)
    """What the honest client waited, in seconds."""
    versions: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Frames by API key and version."""
    slowest: tuple[float, bytes] = (0.0, b"")
    """CPU seconds for one step, or the longest wait of the probe."""
    slow: Counter[str] = field(default_factory=Counter)
    """The API keys of steps that took long, and how often."""
    findings: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def frames(self) -> int:
        return self.reached + self.refused


async def run(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    cases: Path | None = CASES,
    frames_max: int = 1 << 62,
    handler_of: HandlerOf = handler_of,
) -> Totals:
    """Fuzz until the time is up; every life of the broker has a seed of its own."""
    totals = Totals()
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and totals.sent < frames_max:
        life_seed = seed * 1_000_003 + totals.lives
        left = min(LIFE_FRAMES, frames_max - totals.sent)
        await _life(folder, life_seed, left, limit, totals, cases, handler_of)
        totals.lives += 1
    return totals


async def _life(
    folder: Path,
    seed: int,
    frames: int,
    limit: float,
    totals: Totals,
    cases: Path | None,
    handler_of: HandlerOf,
) -> None:
    dice = random.Random(seed)
    engine = await Engine.start(folder, handler_of)
    maker = FrameMaker(dice, engine.known)
    idle = rss_bytes(os.getpid())
    history: list[Step] = []
    fresh: list[tuple[Finding, list[Step]]] = []
    sent, turn = 0, 0
    while sent < frames:
        turn += 1
        if turn % 64 == 0 and time.monotonic() > limit:
            break
        number = await _connection(engine, dice)
        calm = number if number < CALM_CONNECTIONS else None
        made = burst(maker, dice, min(STEP_FRAMES_MAX, frames - sent), calm)
        sent += len(made)
        data = b"".join([frame.data for frame in made])
        step = Step(number, data, _advance(dice))
        history.append(step)
        if len(history) > 2 * HISTORY_STEPS:
            del history[:-HISTORY_STEPS]
        await engine.feed(step, checked(made, dice))
        for found in engine.findings:
            totals.counts[found.signature] = totals.counts.get(found.signature, 0) + 1
            if found.signature not in totals.findings:
                totals.findings[found.signature] = found.text
                fresh.append((found, history[-HISTORY_STEPS:]))
        engine.findings.clear()
    growth = rss_bytes(os.getpid()) - idle
    if growth > GROWTH_BYTES_MAX:
        text = f"{growth >> 20} MiB in life seed {seed}"
        fresh.append((Finding("memory", text), list(history)))
    totals.sent += sent
    totals.versions.update(maker.versions)
    totals.answers += engine.answers
    totals.checked += engine.checked
    totals.slowest = max(totals.slowest, engine.slowest)
    totals.slow += engine.slow
    totals.reached += engine.reached
    totals.refused += engine.refused
    await engine.stop()
    for found in engine.findings:
        totals.findings.setdefault(found.signature, found.text)
        print(f"FOUND at the end, seed={seed}: {found.signature}\n{found.text}", flush=True)
    for found, steps in fresh:
        print(f"FOUND seed={seed}: {found.signature}\n{found.text}", flush=True)
        if cases is not None and not found.signature.startswith(("slow", "memory")):
            case = await minimised(folder, found, steps, engine.topic_ids, handler_of=handler_of)
            where = case.save(cases) if case is not None else "does not show again"
            steps_kept = len(case.steps) if case is not None else 0
            print(f"  case: {where}, {steps_kept} steps", flush=True)


def burst(maker: FrameMaker, dice: random.Random, frames_max: int, calm: int | None) -> list[Frame]:
    """Frames that are sent at once: only the last one may be one that is refused.

    ``calm`` is the number of a connection on which nothing is to be refused.
    """
    made: list[Frame] = []
    while len(made) < frames_max and (not made or made[-1].is_whole):
        made.append(maker.next() if calm is None else maker.calm(calm))
        if dice.random() > (GOES_ON_SHARE if calm is None else CALM_GOES_ON_SHARE):
            break
    return made


def checked(frames: list[Frame], dice: random.Random) -> list[tuple[int, int, int]]:
    """Some of the answers that may come, to be read by kio."""
    asked = []
    for frame in frames:
        if frame.answer is not None:
            share = TEACHING_SHARE if frame.answer[1] in TEACHING else CHECKED_SHARE
            if frame.is_member or dice.random() < share:
                asked.append(frame.answer)
    return asked


async def _connection(engine: Engine, dice: random.Random) -> int:
    """A connection from which the broker reads, or a new one in place of one that has to wait."""
    number = dice.randrange(CONNECTIONS)
    for waited in range(CROWDED_TURNS_MAX * CONNECTIONS):
        if not engine.crowded(number):
            return number
        number = (number + 1) % CONNECTIONS
        if waited % CONNECTIONS == CONNECTIONS - 1:
            await asyncio.sleep(CROWDED_SECONDS)
    engine.end(number)
    return number


def _advance(dice: random.Random) -> int:
    kind = dice.random()
    if kind < 0.7:
        return 0
    if kind < 0.99:
        return dice.choice((1, 5, 100, 600))
    return dice.choice((5_000, 31_000, 61_000))
