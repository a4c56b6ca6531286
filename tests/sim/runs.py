"""A seed, run in surroundings of its own, of which nothing is left but what is to be said of it."""

from __future__ import annotations

import gc
import logging
import os
import random
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.sim.clock import BOOT_MS, WALL_START_MS
from tests.sim.loop import SimLoop
from tests.sim.swarm import Plan, plan_of
from tests.sim.world import Broken, World


@dataclass(frozen=True, slots=True)
class Ended:
    """What is to be said of a run."""

    digest: int
    requests: int
    virtual_s: float


def run(seed: int, *, trace: Callable[[str], None] | None = None) -> Ended:
    """Run a seed; Broken says what did not hold, and names the seed."""
    plan, failure = plan_of(seed), None
    logging.disable(logging.CRITICAL)
    try:
        with litter_picked_up():
            ended, failure = _run(plan, trace)
    finally:
        logging.disable(logging.NOTSET)
    if failure is not None:
        text = f"{type(failure).__name__}: {failure}"
        raise Broken(f"{text} [python -m tests.sim --trace {seed}] {plan}") from failure
    return ended


def _run(plan: Plan, trace: Callable[[str], None] | None) -> tuple[Ended, Exception | None]:
    """The run and why it failed; nothing else of it is left."""
    world, failure = World(plan, trace=trace), None
    try:
        with its_own_world(plan.seed, world.loop):
            world.run()
    except Exception as error:  # noqa: BLE001  Raised again in `run`.
        failure = error
        cause: BaseException | None = error
        while cause is not None:
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__cause__ or cause.__context__
    ended = Ended(world.digest, world.requests, world.loop.time())
    del world  # The failure's traceback has this frame.
    return ended, failure


CLOCKS = (
    *("monotonic", "perf_counter", "process_time", "thread_time"),
    *("perf_counter_ns", "time", "time_ns"),
)
"""The functions of `time` that a run replaces; the first four count seconds from any beginning."""


@contextmanager
def its_own_world(seed: int, loop: SimLoop) -> Iterator[None]:
    """What code asks of the system comes from the seed and the loop: ids, chance and time.

    The broker is handed its clock.  The clients look at the system's, and both measure their own
    work, which takes no time here: on a busy machine it would differ from run to run.
    """
    ids, state = random.Random(f"system {seed}"), random.getstate()
    originals = os.urandom, {name: getattr(time, name) for name in CLOCKS}
    os.urandom = ids.randbytes
    random.seed(seed)
    for name in CLOCKS[:4]:
        setattr(time, name, lambda: BOOT_MS / 1000 + loop.time())
    time.perf_counter_ns = lambda: BOOT_MS * 1_000_000 + loop.now_us * 1_000
    time.time_ns = lambda: WALL_START_MS * 1_000_000 + loop.now_us * 1_000
    time.time = lambda: WALL_START_MS / 1_000 + loop.time()
    try:
        yield
    finally:
        os.urandom, clocks = originals
        for name, clock in clocks.items():
            setattr(time, name, clock)
        random.setstate(state)


@contextmanager
def litter_picked_up() -> Iterator[None]:
    """Killed processes leave coroutines that nobody awaits any more: no reason to complain.

    They are found here, by a collection that looks at nothing older than the run.
    """
    gc.disable()
    gc.freeze()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
            gc.collect()
    finally:
        gc.unfreeze()
        gc.enable()
