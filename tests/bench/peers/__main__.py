"""Compare with real peers: ``python -m tests.bench.peers [--quick | --full] [--only P1,P4]``.

Without options the headline workloads, six pairs each, in less than half an hour.  What was
measured is renewed in ``docs/benchmarks.json``, and the document, its chart and README's table are
made from all that is there.  ``--quick`` prints the report and writes nothing: its logs are too
small to quote.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from tests.bench.document import README, ROOT, write_part
from tests.bench.machine import commit, machine, today
from tests.bench.peers.brokers import KAFKA, KAFKA_TLS
from tests.bench.peers.chart import CHART, RESULTS, draw
from tests.bench.peers.headline import headline
from tests.bench.peers.lines import Scale, Workload
from tests.bench.peers.queues import versions
from tests.bench.peers.report import report
from tests.bench.peers.results import renew
from tests.bench.peers.run import Stage, run, why_missing
from tests.bench.peers.workloads import WORKLOADS

FOLDER = ROOT / "build" / "bench"
HEADLINE_PAIRS, PAIRS = 6, 2
NAMES = [workload.name for workload in WORKLOADS]


@click.command()
@click.option("--quick", is_flag=True, help="One pair of each headline workload, small logs.")
@click.option("--full", is_flag=True, help="Every workload.")
@click.option("--only", default="", metavar="P1,P4", help=f"Of these: {', '.join(NAMES)}.")
@click.option("--pairs", type=click.IntRange(1), help="Instead of six and two.")
@click.option("--records", type=click.IntRange(1), help="Instead of 2,000,000; writes nothing.")
def main(*, quick: bool, full: bool, only: str, pairs: int | None, records: int | None) -> None:
    """Compare this broker with a real Apache Kafka and with other queues, in one run."""
    chosen = choose(only, full=full)
    needs_kafka = any({KAFKA, KAFKA_TLS} & set(workload.peers) for workload in chosen)
    if needs_kafka and (reason := why_missing(KAFKA)):
        raise click.ClickException(f"no Apache Kafka to compare with: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Through `finally`: no broker stays.
    scale = scale_of(quick=quick, records=records)
    about = {"commit": commit(ROOT), "date": today(), "machine": {**machine(), **versions()}}
    for name, value in about["machine"].items():
        click.echo(f"{name}: {value}", err=True)
    click.echo(f"commit: {about['commit']}", err=True)

    def pairs_of(workload: Workload) -> int:
        return pairs or (1 if quick else HEADLINE_PAIRS if workload.headline else PAIRS)

    found, failed = dict[str, Any](), list[str]()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="data-", dir=FOLDER) as data, Stage(Path(data)) as stage:
        for name, result in run(stage, chosen, scale, pairs_of, about, warm=not quick):
            if result is None:
                failed.append(name)
                continue
            found[name] = result
            if not quick and records is None:
                kept = renew(RESULTS, {name: result}, NAMES)
                write_part("peers", report(kept))
                write_part("peers", headline(kept), README)
                draw(kept, CHART)
    click.echo(report(found))
    if failed:
        raise click.ClickException(f"not counted, because they failed: {', '.join(failed)}")


def choose(only: str, *, full: bool) -> list[Workload]:
    """The workloads that are asked for; by default those of the headline."""
    wanted = [name for name in only.split(",") if name]
    if unknown := sorted(set(wanted) - set(NAMES)):
        raise click.UsageError(f"expected some of {', '.join(NAMES)}, got {', '.join(unknown)}")
    if wanted:
        return [workload for workload in WORKLOADS if workload.name in wanted]
    return [workload for workload in WORKLOADS if full or workload.headline]


def scale_of(*, quick: bool, records: int | None) -> Scale:
    if records is not None:
        if records % 400_000:
            raise click.UsageError(f"expected a multiple of 400,000 records, got {records:,}")
        return Scale.quick() if records == Scale.quick().records else Scale(records=records)
    return Scale.quick() if quick else Scale()


if __name__ == "__main__":
    main()
