"""``python -m tests.faults.worker_chaos``: the long trial, from the command line.

Exit code 0: every promise was kept.  The seed is printed first.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.faults.worker_chaos.trial import LONG, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.worker_chaos")
    parser.add_argument("--records", type=int, default=LONG.records)
    parser.add_argument("--workers", type=int, default=LONG.workers)
    parser.add_argument("--worker-kills", type=int, default=LONG.worker_kills)
    parser.add_argument("--broker-kills", type=int, default=LONG.broker_kills)
    parser.add_argument("--exiting", type=int, default=LONG.exiting)
    parser.add_argument("--send-seconds", type=float, default=LONG.send_seconds)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--folder", type=Path, help="keep everything there")
    given = vars(parser.parse_args())
    seed, kept = given.pop("seed"), given.pop("folder")
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="worker-chaos-") as temporary:
        report = run(replace(LONG, **given), seed, kept or Path(temporary))
    for problem in report.verdict.problems:
        print(f"PROBLEM {problem}")
    print(f"seconds              {time.monotonic() - began:.0f}")
    print(f"died                 {report.worker_deaths} workers, {report.broker_deaths} brokers")
    for line in report.verdict.lines():
        print(line)
    return 1 if report.verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
