"""The attacks through TLS and SASL: before a login, and as a user with few rights.

`make attacks` runs all of them; `make test` those before a login that are quick, and two others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.attack import Attack
from tests.attacks.catalog import ATTACKS
from tests.attacks.entrance import Entrance
from tests.attacks.harness import run
from tests.attacks.login_attacks import LOGIN_ATTACKS
from tests.attacks.test_attacks import RUNS_ALL
from tests.interop.secure_listeners import why_no_certificates

SAMPLES = frozenset({"fetches-unread", "gzip-of-nothing"})
CHOSEN = [attack for attack in LOGIN_ATTACKS if RUNS_ALL or not attack.slow]
CHOSEN += [attack for attack in ATTACKS if RUNS_ALL or attack.name in SAMPLES]

pytestmark = pytest.mark.skipif(why_no_certificates() is not None, reason="no openssl here")


@pytest.mark.slow
@pytest.mark.parametrize("attack", CHOSEN, ids=lambda attack: attack.name)
def test_attack_is_held_on_a_secured_broker(attack: Attack, tmp_path: Path) -> None:
    report = run(attack, tmp_path, entrance=Entrance(tmp_path / "certificates"))
    assert not report.problems, report.line()
