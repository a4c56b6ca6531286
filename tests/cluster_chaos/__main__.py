"""``python -m tests.cluster_chaos``: a trial from the command line.

Exit code 0: every promise was kept; 1: one was broken.  The seed is printed first.  The report is
in the folder ``--reports``, as JSON and as text; of a trial that failed the journals and logs are
kept beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster_chaos.names import SETTINGS
from tests.cluster_chaos.plan import plan
from tests.cluster_chaos.report import Report, as_text
from tests.cluster_chaos.stage import Stage
from tests.support.kafka_cluster import KafkaCluster, why_missing

SECONDS_OF_A_FAULT = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--faults", type=int, help="one for each ten seconds, unless given")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--version", default="4.4.0", help="of Apache Kafka")
    parser.add_argument("--reports", type=Path, default=Path("build/cluster-chaos"))
    parser.add_argument("--keep", action="store_true", help="journals and logs in any case")
    given = parser.parse_args()
    missing = why_missing()
    if missing:
        print(f"missing: {missing}", file=sys.stderr)
        return 1
    print(f"seed {given.seed}", flush=True)
    faults = given.faults or max(1, round(given.seconds / SECONDS_OF_A_FAULT))
    given.reports.mkdir(parents=True, exist_ok=True)
    name = given.reports / f"seed-{given.seed}"
    with tempfile.TemporaryDirectory(prefix="cluster-chaos-") as temporary:
        folder = Path(temporary)
        began = time.monotonic()

        def say(line: str) -> None:
            print(f"{time.monotonic() - began:6.0f} {line}", flush=True)

        stage: Stage | None = None
        figures = {"problems": ["the trial itself failed"]}
        try:
            with KafkaCluster(folder / "kafka", given.version, SETTINGS) as cluster:
                say(f"cluster of Apache Kafka {given.version} in {folder}")
                chosen = plan(given.seed, seconds=given.seconds, count=faults)
                stage = Stage(folder, cluster, chosen, say)
                stage.play()
                report = Report(stage, given.seed)
                report.judge()
                figures = report.figures
        finally:
            if figures["problems"] or given.keep:
                _keep(folder, name)
    name.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n")
    name.with_suffix(".txt").write_text(as_text(figures))
    print(as_text(figures), end="")
    return 1 if figures["problems"] else 0


def _keep(folder: Path, where: Path) -> None:
    """Journals and logs, without the data of brokers and Spark."""
    shutil.rmtree(where, ignore_errors=True)
    for path in [*folder.rglob("*.journal"), *folder.rglob("*.log"), *folder.rglob("*.sqlite*")]:
        inside = path.relative_to(folder)
        if path.is_file() and "data" not in inside.parts and "local" not in inside.parts:
            (where / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, where / inside)


if __name__ == "__main__":
    sys.exit(main())
