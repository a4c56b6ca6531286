"""One attacker: a process at nice 19 that repeats one attack until its time is up.

python -m tests.soak.attacker PORT NAME SECONDS [AUTHORITY USER PASSWORD]

It prints a line when it is loaded, and begins when it reads one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress

from tests.attacks.catalog import BY_NAME
from tests.attacks.target import Target
from tests.faults.login import Login, login_of

EVERY_SECONDS = 5.0
NICE = 19


def main(port: int, name: str, seconds: float, login: Login | None) -> None:
    """Repeat the attack; print how often, and how often the broker ended it, as JSON."""
    print("loaded", flush=True)
    sys.stdin.readline()
    os.nice(NICE)
    attack = BY_NAME[name]
    target = Target(port, login=login)
    limit = time.monotonic() + seconds
    rounds = thrown_out = 0
    with suppress(OSError, AssertionError):
        attack.prepare(target)
    while time.monotonic() < limit:
        began = time.monotonic()
        try:
            for _ in attack.round(target):
                pass
        except (OSError, AssertionError):
            thrown_out += 1
        rounds += 1
        target.found.clear()
        left = min(limit, began + EVERY_SECONDS) - time.monotonic()
        time.sleep(max(0.0, left))
    print(json.dumps({"name": name, "rounds": rounds, "thrown_out": thrown_out}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), login_of(sys.argv[4:]))
