"""`python -m tests.sim --seeds N --from S`: run many seeds; `--trace SEED`: show one."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.sim.runs import run
from tests.sim.swarm import plan_of
from tests.sim.world import Broken

REPORT_EACH = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one")
    parser.add_argument("--trace", type=int, help="run this seed alone and print what happens")
    arguments = parser.parse_args()
    if arguments.trace is not None:
        return trace(arguments.trace)
    return run_many(range(arguments.first, arguments.first + arguments.seeds))


def trace(seed: int) -> int:
    print(plan_of(seed))
    try:
        run(seed, trace=print)
    except Broken:
        traceback.print_exc(file=sys.stdout)
        return 1
    return 0


def run_many(seeds: range) -> int:
    """Run them one after the other; a line for each that fails, and one now and then."""
    began, failed, virtual_s, requests = time.perf_counter(), 0, 0.0, 0
    for count, seed in enumerate(seeds, start=1):
        try:
            ended = run(seed)
        except Broken as error:
            failed += 1
            print(f"FAILED {error}", flush=True)
        else:
            virtual_s += ended.virtual_s
            requests += ended.requests
        if count % REPORT_EACH == 0 or count == len(seeds):
            took = time.perf_counter() - began
            print(
                f"seeds={count} from={seeds.start} failed={failed} requests={requests} "
                f"virtual_s={virtual_s:.0f} seconds={took:.1f} seeds_per_s={count / took:.2f}",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
