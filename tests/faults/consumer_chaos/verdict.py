"""Judges the journals of a trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.faults.consumer_chaos.journal import Entry, Kind

PROBLEMS_MAX = 20


@dataclass
class Verdict:
    """What went wrong, and how many runs were repeated."""

    problems: list[str] = field(default_factory=list)
    finished: int = 0
    repeated: int = 0

    def add(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


def judge(journals: Mapping[str, Iterable[Entry]], sent: Mapping[str, int]) -> Verdict:
    """Judge the journals by process; ``sent`` has the number of records of each key."""
    verdict = Verdict()
    begun: dict[tuple[str, int], int] = {}
    finished: dict[tuple[str, int], int] = {}
    for process, journal in journals.items():
        _judge_process(process, journal, verdict, begun, finished)
    for key, count in sent.items():
        for number in range(count):
            record = key, number
            if record not in finished:
                verdict.add(f"{key} {number} was never finished")
            elif number and (key, number - 1) in finished:
                before = finished[key, number - 1]
                if begun[record] < before:
                    verdict.add(f"{key} {number} began before {number - 1} was finished")
    verdict.finished = len(finished)
    return verdict


def judge_outputs(outputs: Iterable[str], sent: Mapping[str, int], verdict: Verdict) -> None:
    """Judge what a trial of ``exactly_once`` has written: each record once, keys in order."""
    numbers: dict[str, list[int]] = {}
    for output in outputs:
        key, _, number = output.rpartition(" ")
        numbers.setdefault(key, []).append(int(number))
    for key, count in sent.items():
        found = numbers.pop(key, [])
        if found != list(range(count)):
            twice = sorted({number for number in found if found.count(number) > 1})
            missing = sorted(set(range(count)) - set(found))
            verdict.add(f"{key}: outputs twice {twice[:5]}, missing {missing[:5]}, or out of order")
    for key in numbers:
        verdict.add(f"{key}: outputs of no record")


def _judge_process(
    process: str,
    journal: Iterable[Entry],
    verdict: Verdict,
    begun: dict[tuple[str, int], int],
    finished: dict[tuple[str, int], int],
) -> None:
    """Check that no key is overtaken within an ownership; fill ``begun`` and ``finished``."""
    latest: dict[tuple[int, str], int] = {}
    running: dict[tuple[int, str], int] = {}
    for entry in journal:
        place, record = (entry.partition, entry.key), (entry.key, entry.number)
        match entry.kind:
            case Kind.ASSIGNED | Kind.GONE:
                for keys in (latest, running):
                    for other in [other for other in keys if other[0] == entry.partition]:
                        del keys[other]
            case Kind.BEGUN:
                if place in running:
                    verdict.add(f"{process}: {record} began while {running[place]} was running")
                if entry.number < latest.get(place, -1):
                    verdict.add(f"{process}: {record} began after {latest[place]}")
                latest[place] = running[place] = entry.number
                begun[record] = min(begun.get(record, entry.at_ns), entry.at_ns)
            case Kind.FAILED:
                running.pop(place, None)
            case Kind.FINISHED:
                running.pop(place, None)
                verdict.repeated += record in finished
                finished[record] = min(finished.get(record, entry.at_ns), entry.at_ns)
