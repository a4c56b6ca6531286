"""How long `sharegroup serve` takes to start, beside an older commit, with and without bytecode.

    mkdir -p build/before && git archive COMMIT src | tar -x -C build/before
    python -m tests.bench.serve_start build/before [--rounds 10]

A round starts both on an empty data directory, in turn, and reads the processor time of the process
when its line `ready` comes: that differs less than the elapsed time when the machine is busy.
*Without bytecode* is without that of our own modules, as in a container that writes none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import click

from tests.support.limits import HANGING_SECONDS

NANOSECONDS = 1_000_000


@click.command()
@click.argument("before", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--rounds", type=click.IntRange(2), default=10, show_default=True)
def main(*, before: Path, rounds: int) -> None:
    """Compare the source tree BEFORE with this one."""
    sources = [(before / "src").resolve(), Path("src").resolve()]
    for source in sources:
        if next(source.rglob("__pycache__"), None) is not None:
            raise click.UsageError(f"{source} has bytecode: remove its folders __pycache__.")
    for has_bytecode in (True, False):
        with tempfile.TemporaryDirectory() as cache:
            for source in sources:
                start_ms(source, cache if has_bytecode else None)
            pairs = []
            for number in range(rounds):
                turn = sources if number % 2 else sources[::-1]
                took = {
                    source: start_ms(source, cache if has_bytecode else None) for source in turn
                }
                pairs.append(tuple(took[source] for source in sources))
        ratios = sorted(now / then for then, now in pairs)
        then, now = (median(side) for side in zip(*pairs, strict=True))
        click.echo(
            f"{'with' if has_bytecode else 'without'} bytecode: {then:.0f} -> {now:.0f} ms, "
            f"ratio {median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]"
        )


def start_ms(source: Path, cache: str | None) -> float:
    """Start a broker from a source tree; return its processor time until it is ready, in ms."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPYCACHEPREFIX", None)
    if cache is not None:
        del environment["PYTHONDONTWRITEBYTECODE"]
        environment["PYTHONPYCACHEPREFIX"] = cache
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "sharegroup", "serve", "--port", "0", "--data", data]
        with (
            tempfile.TemporaryFile() as log,
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=log
            ) as process,
        ):
            assert process.stdout is not None
            line = process.stdout.readline()
            used = Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]
            process.kill()
            process.wait(HANGING_SECONDS)
            log.seek(0)
            assert line.startswith(b"ready "), log.read().decode()
    return int(used) / NANOSECONDS


if __name__ == "__main__":
    main()
