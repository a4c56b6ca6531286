"""``python -m tests.faults.worker_chaos``: the long trial, from the command line.

Exit code 0: every promise was kept.  The seed is printed first.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path

from tests.faults.worker_chaos.trial import LONG, run

PROBLEMS_MAX = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.worker_chaos")
    for size in fields(LONG):
        default = getattr(LONG, size.name)
        if not isinstance(default, bool):
            option = f"--{size.name.replace('_', '-')}"
            parser.add_argument(option, type=type(default), default=default)
    parser.add_argument("--punctual", action=argparse.BooleanOptionalAction, default=LONG.punctual)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--folder", type=Path, help="keep everything there")
    given = vars(parser.parse_args())
    seed, kept = given.pop("seed"), given.pop("folder")
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="worker-chaos-") as temporary:
        report = run(replace(LONG, **given), seed, kept or Path(temporary))
    problems = report.verdict.problems
    for problem in problems[:PROBLEMS_MAX]:
        print(f"PROBLEM {problem}")
    if len(problems) > PROBLEMS_MAX:
        print(f"PROBLEM and {len(problems) - PROBLEMS_MAX} more")
    print(f"seconds              {time.monotonic() - began:.0f}")
    print(f"died                 {report.worker_deaths} workers, {report.broker_deaths} brokers")
    for line in [*report.verdict.lines(), *report.beside]:
        print(line)
    return 1 if report.verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
