"""A short trial for every run of the suite; `python -m
tests.integration.spark.kills` makes long ones."""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.integration.spark.kills.application import is_a, killed, with_children
from tests.integration.spark.kills.brokers import running_broker
from tests.integration.spark.kills.pipeline import Pipeline, Victim
from tests.integration.spark.kills.sink import Delivered, Place, Sink, copy_problems, problems
from tests.integration.spark.kills.trial import Trial, victims
from tests.support.chosen_broker import KAFKA, LONG_WITH_A_JVM, chosen

SEED = 4
KILLS = [Victim.WORKER, Victim.BROKER]
"""The query lives on through both.  The demo's test kills a whole query, with driver and JVM."""
ROWS_BETWEEN_KILLS = range(300, 1_000)


@LONG_WITH_A_JVM
def test_every_record_is_in_the_sink_once(tmp_path: Path) -> None:
    name, pipeline = "kafka" if chosen() == KAFKA else "ours", Pipeline()
    with running_broker(name, tmp_path, pipeline) as running:
        folder = tmp_path / "query"
        trial = Trial(running, folder, pipeline, seed=SEED, rows_between_kills=ROWS_BETWEEN_KILLS)
        report = trial.run(KILLS)
    assert report.problems == [], report
    assert report.in_the_sink == report.produced > 600, report


def test_seed_determines_the_victims_and_each_kind_occurs_equally_often() -> None:
    kinds = Pipeline(executors=2).victims
    assert victims(24, kinds, random.Random(7)) == victims(24, kinds, random.Random(7))
    assert Counter(victims(24, kinds, random.Random(7))) == dict.fromkeys(Victim, 4)
    assert len(set(victims(3, kinds, random.Random(7)))) == 3
    assert set(victims(24, Pipeline().victims, random.Random(7))) == {*Victim} - {Victim.EXECUTOR}


def test_process_that_ends_between_two_looks_is_not_a_victim() -> None:
    """Workers of Spark end at any time; the trial then looks for another one."""
    with subprocess.Popen(("cat",), stdin=subprocess.PIPE) as process:
        found = psutil.Process(process.pid)
        assert with_children(found) == [found]
        process.communicate()
        assert with_children(found) == []
        assert [kind for kind in Victim if is_a(kind, found, root=1)] == []
        assert not killed(found)
    with subprocess.Popen(("cat",), stdin=subprocess.PIPE) as process:
        assert killed(psutil.Process(process.pid))
        assert process.wait() == -signal.SIGKILL


# The verdict itself: what finds nothing must be shown to be able to find something.

PRODUCED: dict[Place, bytes] = {(0, 0): b"a", (0, 1): b"b"}
GOOD = [Delivered(0, 0, 0, b"a"), Delivered(1, 0, 1, b"b")]


def test_all_records_once_is_no_problem() -> None:
    assert list(problems(PRODUCED, GOOD)) == []


@pytest.mark.parametrize(
    ("delivered", "problem"),
    [
        (GOOD[:1], "missing: partition 0 offset 1 (1 in all)"),
        (
            [*GOOD, Delivered(2, 0, 1, b"b")],
            "duplicate: partition 0 offset 1 in the batches [1, 2] (1 in all)",
        ),
        (
            [GOOD[0], Delivered(1, 0, 1, b"x")],
            "wrong: batch 1 partition 0 offset 1 b'x', produced b'b' (1 in all)",
        ),
        (
            [*GOOD, Delivered(1, 7, 0, b"a")],
            "wrong: batch 1 partition 7 offset 0 b'a', produced None (1 in all)",
        ),
    ],
)
def test_a_falsified_sink_has_a_problem(delivered: list[Delivered], problem: str) -> None:
    assert list(problems(PRODUCED, delivered)) == [problem]


def test_copy_has_each_value_at_least_once() -> None:
    assert list(copy_problems([b"a", b"b"], {b"a": 1, b"b": 2})) == []
    assert list(copy_problems([b"a", b"b"], {b"a": 1, b"c": 1})) == [
        "missing in the copy: b'b' (1 in all)",
        "wrong in the copy: b'c' was not produced (1 in all)",
    ]


def test_batch_written_again_replaces_itself(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "sink.sqlite")
    sink.write(0, [(0, 0, b"a"), (0, 1, b"b")])
    sink.write(1, [(0, 2, b"c")])
    sink.write(0, [(0, 0, b"a"), (0, 1, b"b")])
    assert sorted(sink.delivered()) == [
        Delivered(0, 0, 0, b"a"),
        Delivered(0, 0, 1, b"b"),
        Delivered(1, 0, 2, b"c"),
    ]
    assert (sink.count(), sink.batches_written_again()) == (3, 1)
