"""Run the benchmarks: ``python -m tests.bench [--only NAME] [--quick] [--rounds N]``.

Results are kept in ``build/bench/results.json`` by workload; the report is made from all of
them, so a run of one workload renews its lines and leaves the others.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from tests.bench.lines import Scale, Workload
from tests.bench.machine import commit, machine, today
from tests.bench.peers import ApacheKafka, Ours, Peer
from tests.bench.report import report
from tests.bench.workloads import WORKLOADS
from tests.kafka_peer import why_missing

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "bench"
REPORT = ROOT / "docs" / "benchmarks.md"


@click.command()
@click.option("--only", multiple=True, type=click.Choice([each.name for each in WORKLOADS]))
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--records", type=click.IntRange(1_000), help="Records of the large logs.")
@click.option("--quick", is_flag=True, help="Small logs; prints the report, writes no document.")
@click.option("--without-kafka", is_flag=True, help="Ours alone; writes no document.")
def main(
    *, only: tuple[str, ...], rounds: int, records: int | None, quick: bool, without_kafka: bool
) -> None:
    """Compare this broker with a real Apache Kafka, in one run."""
    if not without_kafka and (reason := why_missing()):
        raise click.ClickException(f"no Apache Kafka to compare with: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Through `finally`: no broker stays.
    scale = Scale.quick() if quick else Scale()
    if records is not None:
        scale = replace(scale, records=records)
    chosen = [each for each in WORKLOADS if not only or each.name in only]
    quotable = not (quick or without_kafka or records is not None)
    results: dict[str, Any] = {}
    for name, result in run(chosen, scale, rounds, with_kafka=not without_kafka):
        results[name] = result
        if quotable:
            REPORT.write_text(report(renew({name: result}, {})))
    click.echo(report({"machine": machine(), "workloads": results}))


def run(
    chosen: list[Workload], scale: Scale, rounds: int, *, with_kafka: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every chosen workload over all rounds: its name and what the report needs."""
    data = FOLDER / "data"
    shutil.rmtree(data, ignore_errors=True)
    with ExitStack() as stack:
        peers: list[Peer] = [Ours(data, "fsync"), Ours(data, "os")]
        if with_kafka:
            peers.append(ApacheKafka(data))
        for peer in peers:
            stack.callback(peer.end)
        for workload in chosen:
            taking_part = [peer for peer in peers if workload.applies_to(peer)]
            yield workload.name, _run_one(workload, taking_part, scale, rounds)
    shutil.rmtree(data)


def _run_one(workload: Workload, peers: list[Peer], scale: Scale, rounds: int) -> dict[str, Any]:
    notes = [workload.prepare(peer, scale) for peer in peers]
    measured: list[dict[str, list[dict[str, Any]]]] = [
        {peer.name: [] for peer in peers} for _ in workload.lines
    ]
    if workload.warms_up:
        for peer in peers:
            workload.measure(peer, scale)
            _say(f"warmed up {peer.name}")
    for number in range(1, rounds + 1):
        for peer in peers:
            begin = time.monotonic()
            for line, values, one in zip(
                workload.lines, measured, workload.measure(peer, scale), strict=True
            ):
                values[peer.name].append(one.as_json())
                _say(
                    f"{number}/{rounds} {peer.name:12} {one.value:14,.3f} {line.unit}  {line.what}"
                )
            _say(f"        took {time.monotonic() - begin:.1f} s")
    return {
        "commit": commit(ROOT),
        "date": today(),
        "rounds": rounds,
        "scale": asdict(scale),
        "notes": [note for note in notes if note],
        "lines": [
            {**asdict(line), "peers": values}
            for line, values in zip(workload.lines, measured, strict=True)
        ],
    }


def renew(workloads: dict[str, Any], alone: dict[str, Any]) -> dict[str, Any]:
    """Keep these results in place of older ones of the same names, and all others as they were."""
    path = FOLDER / "results.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    known = {**before.get("workloads", {}), **workloads}
    order = [each.name for each in WORKLOADS if each.name in known]
    kept = {
        "machine": machine(),
        "workloads": {name: known[name] for name in order},
        "alone": {**before.get("alone", {}), **alone},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1))
    return kept


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
