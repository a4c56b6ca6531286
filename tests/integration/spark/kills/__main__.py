"""``python -m tests.integration.spark.kills``: a long trial from the command line.

Exit code 0: every record is in the sink exactly once.  The seed is printed first.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.spark.kills.application import Victim
from tests.integration.spark.kills.trial import SETTINGS, Broker, Trial, victims
from tests.support.kafka_peer import KafkaPeer, free_ports
from tests.support.processes import ServeProcess


@contextmanager
def running_broker(name: str, folder: Path) -> Iterator[Broker]:
    """``ours``, or ``kafka``: a real Apache Kafka."""
    if name == "kafka":
        with KafkaPeer(folder / "kafka", SETTINGS, heap="512m") as kafka:
            yield Broker(kafka.bootstrap_servers, kafka.kill, kafka.start)
    else:
        (port,) = free_ports(1)
        with ServeProcess(folder / "data", port=port, settings=SETTINGS) as process:
            yield Broker(process.bootstrap_servers, process.kill9, process.start)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.integration.spark.kills", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--broker", choices=("ours", "kafka"), default="ours")
    parser.add_argument("--only", type=Victim, choices=[*Victim], help="kill nothing else")
    parser.add_argument("--folder", type=Path, help="keep everything there")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    kills = victims(given.kills, random.Random(given.seed))
    if given.only is not None:
        kills = [given.only] * given.kills
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        with running_broker(given.broker, folder) as broker:
            trial = Trial(broker, folder / "query", seed=given.seed, say=_say)
            report = trial.run(kills)
    for problem in report.problems:
        print(problem)
    print(report)
    return 1 if report.problems else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
