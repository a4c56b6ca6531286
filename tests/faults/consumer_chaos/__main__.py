"""``python -m tests.faults.consumer_chaos``: the long trial; exit code 0: no promise was broken."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.consumer_chaos.trial import LONG, LONG_EXACT, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.consumer_chaos")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--folder", type=Path, help="an empty folder, to keep everything there")
    parser.add_argument("--exactly-once", action="store_true")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="consumer-chaos-") as temporary:
        verdict = run(
            LONG_EXACT if given.exactly_once else LONG, given.seed, given.folder or Path(temporary)
        )
    for problem in verdict.problems:
        print(f"PROBLEM {problem}")
    print(f"finished {verdict.finished}, runs repeated {verdict.repeated}")
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
