"""The figures of a trial, as JSON for programs and as text for people."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.cluster_chaos.judge import (
    AFTERMATH_SECONDS,
    Account,
    Window,
    judge_group,
    judge_idle,
    judge_letters,
    judge_reruns,
    longest_pause,
    produced,
    recovery_seconds,
    with_offset,
)
from tests.cluster_chaos.names import (
    CONFLUENT,
    CONSUMERS,
    DELIVERIES_MAX,
    OURS,
    PLAIN,
    SPARK,
    SPARK_TOPIC,
    WORKERS,
)
from tests.cluster_chaos.producing import is_ours
from tests.cluster_chaos.stage import Stage, fault_windows
from tests.cluster_chaos.worker_lines import FAILED
from tests.faults.worker_chaos.journal import Line, read
from tests.faults.worker_chaos.records import CRUNCH, JOBS, Sent, records
from tests.faults.worker_chaos.topics import read_topics
from tests.faults.worker_chaos.verdict import Verdict, verdict
from tests.integration.spark.kills.query import QUERY_FAILED
from tests.integration.spark.kills.sink import Sink, problems

MEMBERS = tuple(name for names in CONSUMERS.values() for name in names)
Streams = dict[str, list[float]]


class Report:
    """All figures of one trial, and whether a promise was broken."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._journals = {
            name: read(stage.folder / "journals" / name)
            for name in (OURS, CONFLUENT, *MEMBERS, "worker", SPARK)
        }
        self._windows = [Window(done.fault.kind, done.begun, done.undone) for done in stage.faults]
        self.problems: list[str] = list(stage.problems)
        self.figures: dict[str, Any] = {"seed": seed, "lags": stage.last_lags()}

    def judge(self) -> None:
        """Everything; fills ``figures`` and ``problems``.  The cluster still runs."""
        if not self._stage.moments.drained:
            self.problems.append(f"not drained: {self.figures['lags']}")
        sent = [*self._journals[OURS], *self._journals[CONFLUENT]]
        self._judge_plain(sent)
        self._judge_worker(sent)
        self._judge_spark(sent)
        self._judge_streams()
        self.figures["faults"] = dict(Counter(str(window.kind) for window in self._windows))
        self.figures["windows"] = [
            [str(window.kind), round(window.begin, 3), round(window.end, 3)]
            for window in self._windows
        ]
        self.figures["failed_faults"] = [
            f"{done.fault.index} {done.fault.kind}: {done.remark}"
            for done in self._stage.faults
            if "failed" in done.remark
        ]
        self.figures["nodes_ended"] = [node for node, _ in self._stage.ended_nodes]
        self.figures["member_idle_warnings"] = self._count_in_logs("member.idle")
        self.figures["batches_written_unanswered"] = self._count_in_logs("producer.written")[OURS]
        self.figures["producer_epochs"] = self._count_in_logs("producer.new_epoch")[OURS]
        self.figures["raised"] = self._raised()
        self.figures["problems"] = self.problems

    def _judge_plain(self, sent: Iterable[Line]) -> None:
        account = judge_group(
            produced(sent, PLAIN),
            {name: self._journals[name] for name in MEMBERS},
            self._stage.deaths,
            self._windows,
            deliveries_max=DELIVERIES_MAX,
            is_ours=is_ours,
        )
        self.problems += [f"plain: {problem}" for problem in account.problems]
        self.figures["plain"] = _figures(account)

    def _judge_worker(self, sent: Sequence[Line]) -> None:
        confirmed = {
            **produced(sent, JOBS).confirmed,
            **produced(sent, CRUNCH).confirmed,
        }
        lines = self._journals["worker"]
        wanted: list[Sent] = [
            record for record in records(max(confirmed) + 1, 0) if record.number in confirmed
        ]
        deaths = [*self._stage.deaths, *fault_windows(self._stage.faults, AFTERMATH_SECONDS)]
        topics = read_topics(self._stage.cluster.bootstrap_servers)
        found: Verdict = verdict(wanted, lines, deaths, topics, punctual=False)
        reasons, unexplained = judge_reruns(lines, self._stage.deaths, FAILED)
        self.problems += [f"worker: {problem}"[:2000] for problem in found.problems[:20]]
        copies = Counter(letter.number for letter in topics.letters)
        numbers = {copy.place: copy.number for copy in (*topics.sources, *topics.own)}
        doubled, untold = judge_letters(copies, lines, self._stage.deaths, numbers)
        self.problems += [f"worker: {problem}"[:2000] for problem in (*unexplained, *untold)]
        self.figures["worker"] = {
            "confirmed": len(confirmed),
            "refused": len(produced(sent, JOBS).refused) + len(produced(sent, CRUNCH).refused),
            "ends": dict(found.ends),
            "runs": found.runs,
            "runs_cut": found.runs_cut,
            "run_again": dict(reasons),
            "letters_again": dict(doubled),
            "ended_twice": len(found.twice),
            "overlaps": found.overlaps_by_broker,
            "victims": found.victims,
            "in_tiers": len(topics.tiers),
            "due": len(topics.own),
            "letters": len(topics.letters),
            "held_and_tier_retries": sum(
                line.what == "begin" and line.attempt > 1 for line in lines
            ),
            "problems": len(found.problems),
        }

    def _judge_spark(self, sent: Iterable[Line]) -> None:
        wanted = produced(sent, SPARK_TOPIC)
        sink = Sink(self._stage.folder / SPARK / "sink.sqlite")
        delivered = tuple(sink.delivered())
        rows = {row.value: (SPARK_TOPIC, *row.place) for row in delivered}
        places = {}
        for number, place in wanted.confirmed.items():
            value = b"%d" % number
            found = (rows[value],) if value in rows else ()
            places[with_offset(place, found)[1:]] = value
        in_doubt = {b"%d" % number for number in wanted.sent - wanted.confirmed.keys()}
        self.problems += [f"spark: {problem}" for problem in problems(places, delivered, in_doubt)]
        self.figures["spark"] = {
            "sent": len(wanted.sent),
            "confirmed": len(wanted.confirmed),
            "refused": len(wanted.refused),
            "rows": sink.count(),
            "batches_again": sink.batches_written_again(),
            "queries_failed": self._stage.spark.log.count(QUERY_FAILED),
            "starts": self._stage.spark.starts,
        }

    # Time.

    def _judge_streams(self) -> None:
        moments = self._stage.moments
        members = self._members()
        streams = {**members, **self._producers(), SPARK: self._times(SPARK, "rows")}
        self.problems += judge_idle(
            {**members, SPARK: streams[SPARK]}, moments.faults_over, moments.producers_stopped
        )
        self.figures["longest_pause_seconds"] = {
            name: round(longest_pause(times, moments.began, moments.producers_stopped), 1)
            for name, times in streams.items()
        }
        self.figures["calm_pause_seconds"] = {
            name: round(longest_pause(times, moments.faults_over, moments.producers_stopped), 1)
            for name, times in streams.items()
        }
        watched = {**self._partitions(), **self._producers(), SPARK: streams[SPARK]}
        watched["worker"] = self._times("worker", "begin")
        worst: list[tuple[float, str]] = []
        by_component: dict[str, list[float]] = defaultdict(list)
        for done in self._stage.faults:
            recovered = recovery_seconds(watched, done.undone)
            for name, seconds in recovered.items():
                by_component[name.partition(" ")[0]].append(seconds)
            slowest = max(recovered, key=lambda name: recovered[name])
            worst.append((recovered[slowest], f"{done.fault.index} {done.fault.kind}: {slowest}"))
        seconds = [found for found, _ in worst]
        self.figures["recovery_seconds"] = {
            "median": round(median(seconds), 2) if seconds else 0,
            "worst": round(max(worst)[0], 2) if worst else 0,
            "worst_of": max(worst)[1] if worst else "",
            "by_component": {
                name: [round(median(found), 2), round(max(found), 2)]
                for name, found in by_component.items()
            },
        }
        self.figures["seconds"] = {
            "faults": round(moments.faults_over - moments.began),
            "whole": round(moments.whole - moments.faults_over, 1),
            "drained": round(moments.drained - moments.producers_stopped, 1),
        }

    def _members(self) -> Streams:
        """When each consumer was given a record, and each worker process ran a handler."""
        found = {name: self._times(name, "got") for name in MEMBERS}
        for name in WORKERS:
            pids = set(self._stage.pids[name])
            found[name] = [
                line.at
                for line in self._journals["worker"]
                if line.what == "begin" and line.pid in pids
            ]
        return found

    def _producers(self) -> Streams:
        return {name: self._times(name, "confirmed") for name in (OURS, CONFLUENT)}

    def _partitions(self) -> Streams:
        found: Streams = defaultdict(list)
        for name in MEMBERS:
            for line in self._journals[name]:
                if line.what == "got":
                    found[f"partition {line.place[1]}"].append(line.at)
        return {name: sorted(times) for name, times in found.items()}

    def _times(self, component: str, what: str) -> list[float]:
        return [line.at for line in self._journals[component] if line.what == what]

    def _raised(self) -> dict[str, int]:
        return dict(
            Counter(
                f"{name}: {line.error.partition('(')[0]}"
                for name in MEMBERS
                for line in self._journals[name]
                if line.what == "raised"
            )
        )

    def _count_in_logs(self, text: str) -> dict[str, int]:
        paths: list[Path] = [
            *self._stage.folder.glob("*.log"),
            self._stage.folder / SPARK / "query.log",
        ]
        return {path.stem: path.read_text(errors="replace").count(text) for path in paths}


def _figures(account: Account) -> dict[str, Any]:
    return {
        "sent": account.sent,
        "confirmed": account.confirmed,
        "refused": account.refused,
        "seen": account.seen,
        "lost": len(account.lost),
        "exhausted": len(account.exhausted),
        "written_twice_by_confluent": account.written_twice,
        "deliveries": account.deliveries,
        "doubles": dict(+account.doubles),
        "failures": dict(account.failures),
    }


def as_text(figures: Mapping[str, Any]) -> str:
    """For people."""
    lines = ["BROKEN" if figures["problems"] else "held"]
    lines += [f"  {problem}" for problem in figures["problems"]]
    for name, value in figures.items():
        if name not in {"problems", "windows"}:
            lines.append(f"{name:22} {value}")
    return "\n".join(lines) + "\n"
