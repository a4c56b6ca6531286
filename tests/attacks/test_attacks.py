"""Each attack of the catalog holds: an honest client is answered, memory and restart are bounded.

`make test-slow` runs one of each kind; ``ATTACKS=all``, which is `make attacks`, runs them all.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.attacks.attack import Attack
from tests.attacks.catalog import ATTACKS
from tests.attacks.harness import run

RUNS_ALL = os.environ.get("ATTACKS") == "all"
SAMPLE = {
    *("bomb-by-timestamp", "fetches-unread", "metadata-of-everything", "parked-fetches"),
    *("half-frames", "groups-at-the-limit", "lying-count", "connections", "half-http"),
    *("control-characters", "far-future"),
}
CHOSEN = [attack for attack in ATTACKS if RUNS_ALL or attack.name in SAMPLE]


@pytest.mark.slow
@pytest.mark.parametrize("attack", CHOSEN, ids=lambda attack: attack.name)
def test_attack_is_held(attack: Attack, tmp_path: Path) -> None:
    report = run(attack, tmp_path)
    assert not report.problems, report.line()


def test_names_of_attacks_are_unique() -> None:
    names = {attack.name for attack in ATTACKS}
    assert len(names) == len(ATTACKS)
    assert names >= SAMPLE
