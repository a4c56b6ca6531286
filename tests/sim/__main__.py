"""`python -m tests.sim --seeds N --from S`: run many seeds; `--trace SEED`: show one."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.sim.swarm import plan_of
from tests.sim.world import Broken, run


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
    began, failed, virtual_s, requests = time.perf_counter(), 0, 0.0, 0
    for seed in seeds:
        try:
            ended = run(seed)
        except Broken as error:
            failed += 1
            print(f"FAILED {error}", flush=True)
        else:
            virtual_s += ended.virtual_s
            requests += ended.requests
    took = time.perf_counter() - began
    print(
        f"seeds={len(seeds)} failed={failed} requests={requests} virtual_s={virtual_s:.0f} "
        f"seconds={took:.1f} seeds_per_s={len(seeds) / took:.2f}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
