"""The row `core`: see `tests.bench.core_settling`."""

from __future__ import annotations

from statistics import median

from tests.bench.alone.figure import Figure
from tests.bench.core_settling import accepts_a_second, bytes_a_run

RECORDS = 10_000
ROUNDS = 7


def measure(records: int = RECORDS, rounds: int = ROUNDS) -> list[Figure]:
    what = f"core: {records:,} records in flight, accepted one by one in random order"
    speed = median(accepts_a_second(records, seed) for seed in range(rounds))
    return [
        Figure(what=what, unit="accepts/s of CPU time", value=speed, at_least=100_000),
        Figure(what=what, unit="B per run", value=bytes_a_run(records), at_most=100),
    ]
