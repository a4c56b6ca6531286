"""The checker finds what it is there for: each broken broker is caught by the promise it breaks."""

from __future__ import annotations

import re

import pytest

from tests.sim.mutants import MUTANTS, SHOWS_AS, Mutant
from tests.sim.runs import run
from tests.sim.swarm import plan_of
from tests.sim.world import Broken

RUNS_MAX = 12


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_broken_promise_is_found(mutant: Mutant) -> None:
    seeds = [seed for seed in range(400) if mutant.is_shown_by(plan_of(seed))]
    found: set[str] = set()
    with mutant.alive():
        for seed in seeds[:RUNS_MAX]:
            try:
                run(seed)
            except Broken as broken:
                found |= set(re.findall(r"\b([LMQSV]\d+):", str(broken)))
            if found & set(SHOWS_AS.get(mutant.breaks, (mutant.breaks,))):
                return
    pytest.fail(f"{mutant} was not found in {RUNS_MAX} runs, only {sorted(found)}")


def test_every_promise_has_a_mutant_that_breaks_it() -> None:
    """A violation of V3 is reported as S3. S12 has no checks because access control is missing."""
    promises = {f"L{n}" for n in range(1, 5)} | {f"S{n}" for n in range(1, 12)} | {"V1", "V2"}
    promises |= {"M1", "M2", "M3", "Q1", "Q2", "Q3"}
    assert {mutant.breaks for mutant in MUTANTS} == promises
