"""``python -m tests.integration.spark.kills``: a long trial from the command line.

Exit code 0: every record is in the sink exactly once.  The seed is printed first.

With ``--broker cluster``, three Apache Kafka brokers, the query has two executors in processes of
their own unless ``--executors`` says otherwise, and a second query copies the topic with the
streaming sink; each record must be in the copy at least once.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.integration.spark.kills.brokers import BROKERS, running_broker
from tests.integration.spark.kills.pipeline import Pipeline, Victim
from tests.integration.spark.kills.trial import Trial, victims

EXECUTORS_ON_A_CLUSTER = 2


def main() -> int:
    given = _parser().parse_args()
    print(f"seed {given.seed}", flush=True)
    is_cluster = given.broker == "cluster"
    executors = given.executors
    if executors is None:
        executors = EXECUTORS_ON_A_CLUSTER if is_cluster else 0
    pipeline = Pipeline(
        executors=executors,
        kept_bytes_max=given.kept_bytes_max,
        is_copied=given.copy or is_cluster,
    )
    kills = victims(given.kills, given.only or pipeline.victims, random.Random(given.seed))
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        with running_broker(given.broker, folder, pipeline, seed=given.seed, say=_say) as broker:
            trial = Trial(broker, folder / "query", pipeline, seed=given.seed, say=_say)
            report = trial.run(kills)
    for problem in report.problems:
        print(problem)
    print(report)
    return 1 if report.problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.integration.spark.kills", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--broker", choices=BROKERS, default="ours")
    parser.add_argument(
        "--executors", type=int, help="processes of their own; 0: tasks run in the driver's JVM"
    )
    parser.add_argument("--kept-bytes-max", type=int, help="keptBytesMax of the queries")
    parser.add_argument("--copy", action="store_true", help="copy the topic with the sink, too")
    parser.add_argument(
        "--only", type=Victim, choices=[*Victim], nargs="+", help="kill nothing else"
    )
    parser.add_argument("--folder", type=Path, help="keep everything there")
    return parser


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
