"""How long an embedded broker takes to start and to stop: what each test of a user pays.

    python -m tests.bench.embedded_start [--brokers 100]

The first broker of a process also imports the package, so it is reported by itself.
"""

from __future__ import annotations

import resource
import time
from statistics import median, quantiles

import click


@click.command()
@click.option("--brokers", type=click.IntRange(2), default=100, show_default=True)
def main(*, brokers: int) -> None:
    """Start and stop so many brokers, one after the other."""
    began = time.perf_counter()
    from sharegroup.testing import run_broker

    with run_broker():
        first = time.perf_counter() - began
    starts, stops = [], []
    cpu_began = _cpu_seconds()
    for _ in range(brokers):
        began = time.perf_counter()
        with run_broker():
            started = time.perf_counter()
        starts.append(started - began)
        stops.append(time.perf_counter() - started)
    cpu = (_cpu_seconds() - cpu_began) / brokers
    both = [start + stop for start, stop in zip(starts, stops, strict=True)]
    click.echo(f"first start, with imports   {first * 1_000:7.1f} ms")
    for name, seconds in (("start", starts), ("stop", stops), ("start and stop", both)):
        p95 = quantiles(seconds, n=20)[-1]
        click.echo(f"{name:27}{median(seconds) * 1_000:7.1f} ms median  {p95 * 1_000:7.1f} ms p95")
    click.echo(f"processor time of a broker {cpu * 1_000:7.1f} ms")


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
