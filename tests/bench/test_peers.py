"""The harness of `tests.bench.peers` tests itself: what is slower shows as slower, what is lost
is not counted, and where there is no peer there is no ratio.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bench.document import replace_part
from tests.bench.failure import BenchError
from tests.bench.peers.__main__ import choose
from tests.bench.peers.brokers import FSYNC, KAFKA, OS, Broker, Ours
from tests.bench.peers.chart import (
    AGAINST_ITSELF,
    CHART,
    RESULTS,
    SUBJECTS,
    ChartRow,
    chart_rows,
    draw,
)
from tests.bench.peers.headline import LINES, headline
from tests.bench.peers.lines import Against, Line, Measured, Scale
from tests.bench.peers.ratios import ratio_of
from tests.bench.peers.report import report
from tests.bench.peers.results import entry, renew, weakest
from tests.bench.peers.run import Stage, run
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.peers.workloads.java_tools import after_the_join
from tests.bench.peers.workloads.log import Log
from tests.bench.peers.workloads.share_consume import consume
from tests.support.confluent_calls import admin

ABOUT: dict[str, Any] = {"commit": "c", "date": "d", "machine": {"processor": "2 x m"}}
SLOWED = "ours slowed"
LOG = Log(topic="small", records=20_000)


class Slowed(Ours):
    """Our broker, of whose time ten elevenths are taken away, in slices of 40 ms."""

    STOPPED_SECONDS, RUNNING_SECONDS = 0.04, 0.004

    @contextmanager
    def awake(self) -> Iterator[Broker]:
        ended = threading.Event()
        with super().awake() as broker:

            def slow() -> None:
                while not ended.is_set():
                    os.kill(broker.pid, signal.SIGSTOP)
                    time.sleep(self.STOPPED_SECONDS)
                    os.kill(broker.pid, signal.SIGCONT)
                    ended.wait(self.RUNNING_SECONDS)

            slower = threading.Thread(target=slow)
            slower.start()
            try:
                yield broker
            finally:
                ended.set()
                slower.join()


class Consume:
    """A small P1 on two of our own brokers, of which the one plays the rival."""

    name = "P1"
    title = "small"
    headline = True
    peers: tuple[str, ...] = (OS, SLOWED)
    warms_up: tuple[str, ...] = ()
    lines = (
        Line(
            what="consume",
            unit="records/s",
            higher_is_better=True,
            against=(Against(ours=SLOWED, rival=OS, reach=1.0),),
        ),
    )

    def prepare(self, peer: Any, scale: Scale) -> str:
        return LOG.on(peer)

    def measure(self, peer: Any, scale: Scale) -> tuple[Measured | None, ...]:
        return (consume(peer, LOG, explicit=False),)


class Losing(Consume):
    """The same after the first 100 records have gone: as if a broker had lost them."""

    title = "losing"
    peers: tuple[str, ...] = (OS,)
    lines = (
        Line(
            what="consume",
            unit="records/s",
            higher_is_better=True,
            against=(Against(ours=OS, rival=OS, line="consume"),),
        ),
    )

    def prepare(self, peer: Any, scale: Scale) -> str:
        from confluent_kafka import TopicPartition

        note = super().prepare(peer, scale)
        with peer.awake() as broker:
            gone = TopicPartition(LOG.topic, 0, 100)
            admin(broker.bootstrap_servers).delete_records([gone])[gone].result(10)
        return note


def stage(folder: Path) -> Stage:
    factories = {
        OS: lambda folder: Ours(folder, "os"),
        SLOWED: lambda folder: Slowed(folder, "os", name=SLOWED),
    }
    return Stage(folder, factories, lambda name: None)


def results(workload: Any, folder: Path, pairs: int = 1) -> list[tuple[str, dict[str, Any] | None]]:
    with stage(folder) as peers:
        return list(run(peers, [workload], Scale.quick(), lambda _: pairs, ABOUT, warm=False))


@pytest.mark.slow
def test_a_broker_that_is_slowed_down_shows_as_slower(tmp_path: Path) -> None:
    """Ten elevenths of its time are taken; on the busiest machine a tenth must be certain."""
    ((name, found),) = results(Consume(), tmp_path, pairs=3)
    assert found is not None
    assert name == "P1"
    assert found["interval"][1] < 0.9, found
    (said,) = found["comparisons"]
    assert (said["ours_is"], said["peer_is"], said["reached"]) == (SLOWED, OS, False)
    assert len(said["pairs"]) == 3
    cost = {cost["peer"]: cost for cost in found["costs"]}
    assert cost[OS]["broker_cpu_s"] > 0
    assert cost[OS]["client_cpu_s"] > 0
    assert cost[OS]["peak_pss_mib"] > 1
    assert cost[OS]["syncs"] >= 0


@pytest.mark.slow
def test_a_workload_that_loses_a_record_is_not_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert results(Losing(), tmp_path) == [("P1", None)]
    assert "FAILED P1 losing: BenchError" in (told := capfd.readouterr().err)
    assert "records from offset 0, got 100 to" in told


class Fixed:
    """Figures that are there already."""

    name = "P1"
    title = "fixed"
    headline = True
    peers: tuple[str, ...] = (FSYNC, KAFKA)
    warms_up: tuple[str, ...] = ()

    def __init__(self, *against: Against, higher_is_better: bool = True) -> None:
        self.lines = (Line(what="a", unit="u", higher_is_better=higher_is_better, against=against),)

    def prepare(self, peer: Any, scale: Scale) -> str:
        return ""

    def measure(self, peer: Any, scale: Scale) -> tuple[Measured | None, ...]:
        return ()


def kept(workload: Fixed, **values: list[float]) -> dict[str, Any]:
    names = {"ours": FSYNC, "kafka": KAFKA}
    rounds = {
        names[name]: [[Measured(value=value) for value in some]] for name, some in values.items()
    }
    return entry(
        workload, rounds, {**ABOUT, "notes": [], "durability": {}, "rounds": 1, "seconds": 1}
    )


AGAINST = Against(ours=FSYNC, rival=KAFKA, reach=1.5)


def test_workload_without_a_peer_has_no_ratio() -> None:
    found = kept(Fixed(AGAINST), ours=[10.0, 20.0])
    assert (found["ours"], found["peer"], found["ratio"], found["interval"]) == (
        15,
        None,
        None,
        None,
    )
    assert "| P1 | a | u | ours fsync | 15 | Kafka | - | - | - | ≥ 1.5 | 0 |" in report(
        {"P1": found}
    )


def test_workload_is_represented_by_its_weakest_comparison() -> None:
    """With a ratio of 2, one comparison has three quarters of its target, the other exceeds it."""
    strict = Against(ours=FSYNC, rival=KAFKA, reach=8 / 3)
    found = kept(Fixed(Against(ours=FSYNC, rival=KAFKA), AGAINST, strict), ours=[8.0], kafka=[4.0])
    assert found["comparisons"].index(weakest(found["comparisons"])) == 2


def test_missing_peer_is_reported_once_and_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    factories = {OS: lambda folder: Ours(folder, "os")}
    missing = {OS: None, "RabbitMQ": "no rabbitmq-server is installed"}
    with Stage(tmp_path, factories, missing.get) as peers:
        for _ in range(2):
            assert [peer.name for peer in peers.peers((OS, "RabbitMQ"))] == [OS]
    assert capfd.readouterr().err == "skipped RabbitMQ: no rabbitmq-server is installed\n"


@pytest.mark.parametrize(("higher_is_better", "ratio"), [(True, 0.5), (False, 2.0)])
def test_a_ratio_above_one_is_better_for_us(*, higher_is_better: bool, ratio: float) -> None:
    found = kept(Fixed(AGAINST, higher_is_better=higher_is_better), ours=[20.0], kafka=[40.0])
    assert found["ratio"] == pytest.approx(ratio)
    assert found["comparisons"][0]["reached"] is (ratio >= 1.5)


def test_each_value_is_compared_with_its_neighbour_in_time() -> None:
    """The machine gets four times slower; each pair says 2, and so does the ratio, surely."""
    found = ratio_of([80.0, 40.0, 20.0], [40.0, 20.0, 10.0], higher_is_better=True)
    assert (found.ratio, found.low, found.high) == pytest.approx((2, 2, 2))
    assert found.kind == "95 %"


def test_the_interval_is_students() -> None:
    """Ratios 1, 2 and 4: mean 2 of the logarithms, deviation log 2, t of two degrees 4.303."""
    found = ratio_of([1.0, 2.0, 4.0], [1.0, 1.0, 1.0], higher_is_better=True)
    assert found.ratio == pytest.approx(2)
    assert found.low == pytest.approx(0.3574, rel=1e-3)
    assert found.high == pytest.approx(11.19, rel=1e-3)


def test_two_pairs_have_a_spread_and_no_interval() -> None:
    found = ratio_of([10.0, 40.0], [10.0, 10.0], higher_is_better=True)
    assert (found.ratio, found.low, found.high, found.kind) == (pytest.approx(2), 1, 4, "spread")


@pytest.mark.parametrize(("ours", "reached"), [([1.9], True), ([2.1], False)])
def test_behind_max_limits_the_distance_to_the_peer(*, ours: list[float], reached: bool) -> None:
    limit = Against(ours=FSYNC, rival=KAFKA, behind_max=1.0)
    found = kept(Fixed(limit, higher_is_better=False), ours=ours, kafka=[1.0])
    assert found["comparisons"][0]["reached"] is reached
    assert "at most 1 u behind" in report({"P1": found})


def test_run_replaces_only_its_own_results(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    renew(path, {"P2": {"ratio": 1}, "P1": {"ratio": 1}}, ["P1", "P2"])
    assert renew(path, {"P2": {"ratio": 3}}, ["P1", "P2"]) == {
        "P1": {"ratio": 1},
        "P2": {"ratio": 3},
    }


def test_the_chart_of_the_same_results_is_the_same(tmp_path: Path) -> None:
    """One pair, whose ratio is not its own logarithm's exponent to the last digit."""
    found = {"P1": kept(Fixed(AGAINST), ours=[5.636], kafka=[0.976])}
    for name in ("one.svg", "two.svg"):
        draw(found, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def compared(what: str, ours: str, ratio: float | None) -> dict[str, Any]:
    return {"what": what, "ours_is": ours, "peer_is": KAFKA, "ratio": ratio}


def test_a_line_of_the_chart_is_named_by_what_the_others_do_not_say() -> None:
    lines = [
        compared("Producer, 100 B, batches of 500", FSYNC, 1.5),
        compared("Producer, 100 B, batches of 500", OS, 2.5),
        compared("Producer, 100 B, batches of 100", FSYNC, 0.5),
        compared("Producer, 100 B, batches of 9", FSYNC, None),
    ]
    heading = f"{SUBJECTS['P1'].label} : Apache Kafka"
    assert chart_rows({"P1": {"comparisons": lines}}) == [
        ChartRow(heading, {}, is_heading=True),
        ChartRow("batches of 500", {FSYNC: 1.5, OS: 2.5}),
        ChartRow("batches of 100", {FSYNC: 0.5}),
    ]
    assert chart_rows({"P1": {"comparisons": lines[:2]}}) == [
        ChartRow(heading, {FSYNC: 1.5, OS: 2.5}, is_heading=True),
    ]


def test_each_workload_is_in_the_chart_or_compares_with_itself() -> None:
    names = [workload.name for workload in WORKLOADS]
    assert sorted(names) == sorted([*SUBJECTS, *AGAINST_ITSELF])


def test_chart_in_docs_is_current(tmp_path: Path) -> None:
    """Its texts, which include every number; curves may differ between versions of matplotlib."""
    draw(json.loads(RESULTS.read_text()), tmp_path / "benchmarks.svg")
    texts = chart_texts(CHART)
    assert "share consume, 1 KiB : Apache Kafka" in texts
    assert texts == chart_texts(tmp_path / "benchmarks.svg"), (
        "docs/benchmarks.svg does not show docs/benchmarks.json; "
        "run python -m tests.bench.peers.chart"
    )


def chart_texts(path: Path) -> list[str]:
    """The texts of a chart: it is drawn as curves, with each text in a comment."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(), re.DOTALL)


def test_only_the_named_part_of_the_document_is_replaced() -> None:
    text = "A\n<!-- one -->\nold\n<!-- end -->\nB\n<!-- two -->\nkept\n<!-- end -->\nC\n"
    assert replace_part(text, "one", "new\n") == (
        "A\n<!-- one -->\n\nnew\n\n<!-- end -->\nB\n<!-- two -->\nkept\n<!-- end -->\nC\n"
    )
    with pytest.raises(BenchError, match="expected one part <!-- three -->"):
        replace_part(text, "three", "new")


def test_headline_workloads_run_by_default() -> None:
    names = [workload.name for workload in choose("", full=False)]
    assert names == ["P1", "P2", "P6", "P7", "P9", "P12"]
    assert [workload.name for workload in choose("P4,P1", full=False)] == ["P1", "P4"]
    assert len(choose("", full=True)) >= 15
    with pytest.raises(Exception, match="got P99"):
        choose("P99", full=False)


PERF_TOOL = """\
2026-11-21 12:00:00:000, 2026-11-21 12:00:05:000, 0.0, 0.0, 0.2, 100, 5000 for share consumer 2
2026-11-21 12:00:00:000, 2026-11-21 12:00:05:100, 0.0, 0.0, 0.2, 500, 5100 for share consumer 1
2026-11-21 12:00:05:000, 2026-11-21 12:00:05:200, 0.0, 0.0, 9.0, 900, 200 for share consumer 2
2026-11-21 12:00:00:000, 2026-11-21 12:00:07:100, 0.1, 0.1, 0.1, 4600, 7100
"""


def test_time_to_join_is_excluded_from_the_figures_of_the_perf_tool() -> None:
    """When both consumers had their first records, at 5.1 s, 600 were read; 4,000 follow in 2 s."""
    assert after_the_join(PERF_TOOL, 4_600) == {"counted": 4_000, "seconds": 2.0}


def test_reports_of_two_consumers_on_one_line_are_two_reports() -> None:
    """A thread printed between the other's line and its end; there is no consumer 22026."""
    jammed = PERF_TOOL.replace("for share consumer 2\n", "for share consumer 2", 1)
    assert "for share consumer 22026-11-21" in jammed
    assert after_the_join(jammed, 4_600) == {"counted": 4_000, "seconds": 2.0}


def test_the_perf_tool_must_have_taken_every_record() -> None:
    with pytest.raises(BenchError, match="expected 4601 records"):
        after_the_join(PERF_TOOL, 4_601)


def test_readme_shows_required_and_measured_ratios() -> None:
    told = Against(ours=FSYNC, rival=KAFKA)
    found = kept(Fixed(AGAINST, told), ours=[30.0], kafka=[20.0])
    for said in found["comparisons"]:
        said["what"] = "confluent ShareConsumer, implicit, 100 B, batches of 500, 1 partition"
    assert headline({"P1": found, "P8": found}).splitlines()[2:] == [
        "| share consume, 100 B, records a second | Kafka | 1.5 | - |"
    ]


@pytest.mark.parametrize(("name", "what", "says"), LINES)
def test_workloads_in_the_readme_are_measured(name: str, what: str, says: str) -> None:
    (workload,) = choose(name, full=False)
    assert what in [line.what for line in workload.lines], says
