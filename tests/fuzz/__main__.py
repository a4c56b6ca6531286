"""The command of `tests.fuzz`; `make fuzz` runs it."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import click
import uvloop

from sharegroup.broker.server.dispatch import prepare_steps
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.steps import run_to_end
from sharegroup.wire.codec.apis import APIS
from tests.attacks.probe import percentile
from tests.fuzz import by_socket, in_process
from tests.fuzz.findings import CASES
from tests.fuzz.frames import VERSIONS


@click.command()
@click.option("--seconds", type=float, default=600, show_default=True)
@click.option("--seed", type=int, default=None, help="Default: from the clock; it is printed.")
@click.option("--frames", type=int, default=1 << 62, help="End after this many frames.")
@click.option("--socket", "is_socket", is_flag=True, help="Through sockets to a broker process.")
@click.option(
    "--secured", "is_secured", is_flag=True, help="The same through TLS, as a user with few rights."
)
@click.option("--no-cases", is_flag=True, help="Do not minimise and store findings.")
@click.option(
    "--cases",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=CASES,
    help="The folder for findings, by default the one whose cases the tests replay.",
)
def main(
    *,
    seconds: float,
    seed: int | None,
    frames: int,
    is_socket: bool,
    is_secured: bool,
    no_cases: bool,
    cases: Path,
) -> None:
    """Fuzz the broker; exit code 1 if something broke."""
    seed = int(time.time()) if seed is None else seed
    click.echo(f"seed={seed}")
    began, cpu = time.monotonic(), _cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_memory_folder()) as folder:
        is_socket = is_socket or is_secured
        run_in = partial(by_socket.run, is_secured=is_secured) if is_socket else in_process.run
        run = run_in(
            Path(folder) / "life" / "data",
            seconds=seconds,
            seed=seed,
            cases=None if no_cases else cases,
            frames_max=frames,
        )
        if not is_socket:
            for api, version in VERSIONS:  # Or the first request of each takes long.
                run_to_end(prepare_steps({}, handler_of, api.key, version))
        gc.collect()
        gc.freeze()  # What is imported is not the broker's to look through.
        totals = uvloop.run(run)
    took, cpu = time.monotonic() - began, _cpu_seconds() - cpu
    click.echo(
        f"seed={seed} frames={totals.frames} per_second={totals.frames / took:.0f} "
        f"per_cpu_second={totals.frames / cpu:.0f} reached={totals.reached} "
        f"({totals.reached / max(1, totals.frames):.0%}) refused={totals.refused} "
        f"answers={totals.answers} checked={totals.checked} lives={totals.lives} "
        f"slowest={totals.slowest[0]:.3f} s findings={len(totals.findings)}"
    )
    click.echo(_mix(totals))
    if totals.probes:
        click.echo(
            f"  probe: {len(totals.probes)} requests, p50 {percentile(totals.probes, 0.5):.4f} s, "
            f"p99 {percentile(totals.probes, 0.99):.3f} s, max {max(totals.probes):.3f} s; "
            f"{totals.stuck} connections were given up"
        )
    if totals.slow:
        slow = "; ".join(f"{keys}: {count}" for keys, count in totals.slow.most_common(20))
        click.echo(f"  slow steps by API keys: {slow}")
        click.echo(f"  slowest: {totals.slowest[1][:3_000].hex()}")
    for signature in totals.findings:
        click.echo(f"  {totals.counts.get(signature, 1)} times {signature}")
    sys.exit(1 if totals.findings else 0)


def _mix(totals: in_process.Totals) -> str:
    counts = totals.versions
    apis: Counter[str] = Counter()
    for (key, _), count in counts.items():
        apis[APIS[key].name] += count
    most = " ".join(f"{name}={count / apis.total():.1%}" for name, count in apis.most_common(8))
    return (
        f"  mix: {len(apis)} of {len(APIS)} APIs, {len(counts)} of {len(VERSIONS)} versions, "
        f"the rarest {min(counts.values(), default=0)} times; {most}"
    )


def _cpu_seconds() -> float:
    """Of this process and those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _memory_folder() -> str | None:
    """A file system in memory, if there is one: the disk is not what is fuzzed."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    main()
