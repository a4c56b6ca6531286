"""The whole broker on virtual time: no seed may break a promise, and a seed is always one run.

`python -m tests.sim --seeds N --from S` runs more of them.  A seed means another run whenever
clients or faults change, so what seeds found is kept in `tests/faults/test_found_by_simulation.py`
and in the tests of the parts that were wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.runs import run
from tests.sim.swarm import plan_of

SEEDS = 24
SEEDS_OF_ONE_TEST = 6
PLANS = 200
"""Seeds whose plans are looked at and not run."""

ANY_SEED = 17
SEED_WITH_CLIENTS_AND_PIPELINES = 1


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_OF_ONE_TEST))
def test_no_promise_is_broken(first: int) -> None:
    for seed in range(first, first + SEEDS_OF_ONE_TEST):
        run(seed)


JUMPING_CLOCKS = """
import itertools, time
ticks = itertools.count()
for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time"):
    setattr(time, name, lambda: next(ticks) * 0.02)
"""
"""The clocks of a machine that is so busy that each look at them takes 20 ms."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [ANY_SEED, SEED_WITH_CLIENTS_AND_PIPELINES])
def test_a_seed_is_the_same_run_in_every_process(seed: int) -> None:
    """Other processes have other hashes of strings, other orders of sets, and other speeds."""
    plan = plan_of(seed)
    assert (plan.own_clients and plan.pipelines) or seed == ANY_SEED
    digests = {run(seed).digest, run(seed).digest}
    code = f"from tests.sim.runs import run; print(run({seed}).digest)"
    for hash_seed, before in (("1", ""), ("2", JUMPING_CLOCKS)):
        done = subprocess.run(
            [sys.executable, "-c", before + code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        digests.add(int(done.stdout))
    assert len(digests) == 1


def test_seeds_differ_in_their_faults() -> None:
    plans = [plan_of(seed) for seed in range(PLANS)]
    assert sum(not plan.faults for plan in plans) >= PLANS // 20, "some have no faults at all"
    for fault in ("kill", "power", "sync_fails", "pause", "half_open"):
        alone = sum(fault in plan.faults and len(plan.faults) <= 3 for plan in plans)
        assert alone >= 2, f"{fault} is drowned by other faults in every seed"
