"""The CPU time of a Spark query by process, in microseconds for each row.

    python -m tests.bench.spark_cost [--bytes N] [--rounds N] [--executors N ...] [--kafka]

A query reads four partitions to their end into a sink that keeps nothing, as in the benchmark P13,
after a first query that does not count.  ``--kafka`` also runs Spark's own source on an Apache
Kafka, in turn with ours.  ``--executors N`` gives ours N executor processes with one core each
(``local-cluster``) instead of two cores in the driver; if it is repeated, one number of them after
the other is measured.

The processes of a query are looked at ten times a second.  What those that end use after the last
look is in the column "ended", so "all" is exact.  Figures in "s" are seconds of wall time.
"""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from contextlib import ExitStack

import click
import psutil

from tests.bench.document import ROOT
from tests.bench.equal_batches import fill
from tests.bench.peers.brokers import ApacheKafka, Ours, Peer
from tests.bench.peers.workloads.spark import LOCKS_MAX, PARTITIONS, read_all, with_rows
from tests.bench.spark_process import SparkProcess, our_spark, rival_spark, tree_cpu_seconds

FOLDER = ROOT / "build" / "bench-spark-cost"
LOOK_SECONDS = 0.1
ROLES = {
    "python_streaming_source_runner": "reader",
    "pyspark.worker": "workers",
    "CoarseGrainedExecutorBackend": "executors",
    "data_source": "planning",
    "org.apache.spark": "JVM",
}
"""Parts of command lines, and the names of the processes; the first part that occurs counts."""
COLUMNS = ("broker", "reader", "workers", "executors", "JVM", "planning", "other", "ended", "all")


class Meter:
    """Looks at the CPU time of the descendants of a process, by role."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[tuple[int, float], tuple[str, float]] = {}
        self._begun = self._look()
        self._total = tree_cpu_seconds(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()
        self.total_s = tree_cpu_seconds(self._pid) - self._total

    def seconds(self) -> dict[str, float]:
        """Return the CPU seconds by role; ``ended`` is what no look has seen."""
        by_role: dict[str, float] = defaultdict(float)
        for key, (role, used) in self._seen.items():
            by_role[role] += used - self._begun.get(key, 0.0)
        by_role["ended"] = self.total_s - sum(by_role.values())
        by_role["all"] = self.total_s
        return by_role

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> dict[tuple[int, float], float]:
        found = {}
        for process in psutil.Process(self._pid).children(recursive=True):
            try:
                key = process.pid, process.create_time()
                times = process.cpu_times()
                # Asked at each look: a new process has its parent's command line at first.
                role = _role(" ".join(process.cmdline()))
            except psutil.NoSuchProcess:
                continue
            found[key] = times.user + times.system
            self._seen[key] = role, found[key]
        return found


def _role(command: str) -> str:
    return next((role for part, role in ROLES.items() if part in command), "other")


@click.command()
@click.option("--bytes", "record_bytes", default=1_024, show_default=True)
@click.option("--records", default=0, help="By default as many as in P13.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--executors", default=[0], multiple=True, help="Executor processes; 0 for local[2].")
@click.option("--kafka", is_flag=True, help="Also measure Spark's own source on Apache Kafka.")
@click.option("--durability", type=click.Choice(["os", "fsync"]), default="os")
def main(
    record_bytes: int,
    records: int,
    rounds: int,
    executors: tuple[int, ...],
    kafka: bool,
    durability: str,
) -> None:
    """Print the CPU time of a query of each side by process."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    records = records or (5_000_000 if record_bytes <= 100 else 1_250_000)
    with ExitStack() as stack:
        peers: list[Peer] = [Ours(FOLDER, durability)]
        peers += [ApacheKafka(FOLDER)] if kafka else []
        for peer in peers:
            stack.callback(peer.end)
            with peer.awake() as broker:
                fill(
                    broker.bootstrap_servers,
                    "rows",
                    records=records,
                    record_bytes=record_bytes,
                    batch_records=500 if record_bytes <= 100 else 50,
                    partitions=PARTITIONS,
                )
        title = f"{record_bytes} B"
        print(title, "executors", "rows/s", "s", "s in batches", "batches", *COLUMNS, sep="\t")
        for number in executors:
            compare(peers, number, records=records, rounds=rounds)


def compare(peers: list[Peer], executors: int, *, records: int, rounds: int) -> None:
    """Print the lines of all sides, in turn, after a query of each that does not count."""
    with ExitStack() as stack:
        sessions: dict[Peer, SparkProcess] = {}
        for peer in peers:
            sessions[peer] = spark_of(peer, executors)
            stack.callback(sessions[peer].close)
            measure(peer, sessions[peer], records)
        for _ in range(rounds):
            for peer in peers:
                name, *figures = measure(peer, sessions[peer], records)
                print(name, executors if peer.ours else 0, *figures, sep="\t", flush=True)


def spark_of(peer: Peer, executors: int) -> SparkProcess:
    """Return the Spark of a broker; ours may have executor processes of its own."""
    folder = (FOLDER / f"{peer.name.replace(' ', '-')}-spark").absolute()
    if not peer.ours:
        return rival_spark(folder)
    master = {"spark.master": f"local-cluster[{executors},1,1024]"} if executors else {}
    return our_spark(folder, master)


def measure(peer: Peer, session: SparkProcess, records: int) -> list[str]:
    """Run one query; return its line of the table."""
    with peer.awake() as broker:
        session.start()
        with Meter(session.pid) as meter:
            ran = read_all(peer, broker, "rows", records, locks_max=LOCKS_MAX, session=session)
    seconds = meter.seconds()
    seconds["broker"] = ran["broker_cpu_s"]
    seconds["all"] += ran["broker_cpu_s"]
    batches = with_rows(ran)
    in_batches = sum(batch["milliseconds"] for batch in batches) / 1000
    figures = [seconds.get(column, 0.0) * 1e6 / records for column in COLUMNS]
    return [
        peer.name,
        f"{records / in_batches:.0f}",
        f"{ran['seconds']:.2f}",
        f"{in_batches:.2f}",
        str(len(batches)),
        *(f"{figure:.2f}" for figure in figures),
    ]


if __name__ == "__main__":
    main()
