"""Did it get slower?  The same workloads on an older commit and on this one, in turn.

    mkdir -p build/before && git archive COMMIT src | tar -x -C build/before
    python -m tests.bench.paired build/before [--only NAME] [--rounds N] [--durability fsync|os]

``without-uvloop`` in place of a folder compares with this tree on asyncio's own event loop.

By default the lines with batches of 100 and of 5,000 records take half a second each, in which
the same source tree measured twice differs by up to 40 %; ``--records 8000000`` gives them four.

Both run in one session, measurement about measurement: before, now, now, before, and so on, so
that whatever the machine does besides meets both alike.  Each pair gives a ratio, above 1 when now
is better.  A line is worse when every pair says so; then the exit code is 1.  Brokers, tools and
clients that are processes of their own are the older ones where before is measured; what runs
within this process (confluent's clients, the measuring itself) is the same for both.
"""

from __future__ import annotations

import compileall
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import click

from tests.bench.document import ROOT
from tests.bench.peers.brokers import FSYNC, Ours
from tests.bench.peers.lines import Line, Measured, Scale, Workload
from tests.bench.peers.ratios import pair_ratios
from tests.bench.peers.run import measure
from tests.bench.peers.workloads import WORKLOADS

FOLDER = ROOT / "build" / "bench"
WITHOUT_UVLOOP = "without-uvloop"
NAMES = [workload.name for workload in WORKLOADS if FSYNC in workload.peers]
Pairs = list[tuple[Measured, Measured]]


class Built(Ours):
    """Our broker from one source tree; workloads remember by its name what they prepared."""

    def __init__(
        self,
        name: str,
        source: Path,
        *,
        folder: Path,
        durability: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, durability, name=name, settings=settings)
        self.source = source


@click.command()
@click.argument("before", callback=lambda _context, _parameter, value: tree(value))
@click.option("--only", multiple=True, type=click.Choice(NAMES))
@click.option("--rounds", type=click.IntRange(2), default=6, show_default=True)
@click.option("--durability", type=click.Choice(["fsync", "os"]), default="fsync")
@click.option("--quick", is_flag=True, help="Small logs.")
@click.option("--records", type=click.IntRange(1), help="In the main log; others have a fraction.")
def main(
    *,
    before: Path,
    only: tuple[str, ...],
    rounds: int,
    durability: str,
    quick: bool,
    records: int | None,
) -> None:
    """Compare the source tree BEFORE with this one."""
    scale = Scale.quick() if quick else Scale()
    scale = replace(scale, records=records or scale.records)
    data = FOLDER / "paired"
    shutil.rmtree(data, ignore_errors=True)
    sources = {"before": before.resolve() / "src", "now": Path("src").resolve()}
    for source in sources.values():
        compileall.compile_dir(source, quiet=1)  # What is compiled at each start hides the rest.
    worse = False
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        peers = [
            Built(name, source, folder=data, durability=durability)
            for name, source in sources.items()
        ]
        for peer in peers:
            stack.callback(peer.end)
        for workload in WORKLOADS:
            if workload.name in (only or NAMES):
                measured = run_pairs(workload, peers, scale, rounds)
                for line, pairs in zip(workload.lines, measured, strict=True):
                    worse |= _say(line, pairs)
    sys.exit(1 if worse else 0)


def tree(before: str) -> Path:
    """Return the folder with the source tree to compare with."""
    if before != WITHOUT_UVLOOP:
        if not Path(before, "src").is_dir():
            raise click.BadParameter(
                f"expected a folder with a folder src, or {WITHOUT_UVLOOP}; found {before!r}"
            )
        return Path(before)
    folder = FOLDER / WITHOUT_UVLOOP
    source = folder / "src"
    shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    (source / "sharegroup").symlink_to(ROOT / "src" / "sharegroup")
    (source / "uvloop.py").write_text("from asyncio import new_event_loop, run\n")
    return folder


def run_pairs(workload: Workload, peers: list[Built], scale: Scale, rounds: int) -> list[Pairs]:
    """For each line, what was measured before and now, round by round."""
    for peer in peers:
        with _running(peer.source):
            workload.prepare(peer, scale)
            if FSYNC in workload.warms_up:
                measure(workload, peer, scale)
    pairs: list[Pairs] = [[] for _ in workload.lines]
    for number in range(rounds):
        found: dict[str, tuple[Measured | None, ...]] = {}
        for peer in peers if number % 2 == 0 else reversed(peers):
            with _running(peer.source):
                found[peer.name] = measure(workload, peer, scale)
        before, now = (found[peer.name] for peer in peers)
        for line, was, is_ in zip(pairs, before, now, strict=True):
            if was is not None and is_ is not None:
                line.append((was, is_))
    return pairs


@contextmanager
def _running(source: Path) -> Iterator[None]:
    """Processes that are started here import our package from ``source``."""
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(source)
    try:
        yield
    finally:
        if kept is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = kept


def ratios(line: Line, pairs: Pairs) -> list[float]:
    """Now to before of each pair, lowest first; above 1 when now is better."""
    before, now = ([pair[side].value for pair in pairs] for side in (0, 1))
    return sorted(pair_ratios(now, before, higher_is_better=line.higher_is_better))


def _say(line: Line, pairs: Pairs) -> bool:
    """Print one line of the comparison; whether it got worse."""
    found = ratios(line, pairs)
    is_worse = found[-1] < 1
    before, now = (median(pair[side].value for pair in pairs) for side in (0, 1))
    verdict = "WORSE" if is_worse else "ok   "
    click.echo(
        f"{verdict} {median(found):5.2f}  [{found[0]:.2f}, {found[-1]:.2f}]"
        f"  {before:,.4g} -> {now:,.4g} {line.unit}  {broker_cpu(pairs)}{line.what}"
    )
    return is_worse


def broker_cpu(pairs: Pairs) -> str:
    """What the broker computed for it; a busy machine spoils that less than it does times."""
    before, now = ([pair[side].broker_cpu_s for pair in pairs] for side in (0, 1))
    known = [[result for result in side if result is not None] for side in (before, now)]
    if not all(known):
        return ""
    return f"broker CPU {median(known[0]):.3g} -> {median(known[1]):.3g} s  "


if __name__ == "__main__":
    main()
