"""Judges a consumer group in order by key, by its journals, and what it wrote in transactions.

The number of a record says its key and its place in it: `key_of`, `place_of`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.worker_chaos.journal import Line
from tests.faults.worker_chaos.names import KEYS

PROBLEMS_MAX = 20
MOVES = frozenset({"assigned", "revoked", "lost"})


def key_of(number: int) -> int:
    return number % KEYS


def place_of(number: int) -> int:
    return number // KEYS


@dataclass
class KeyedVerdict:
    """What went wrong, and how many runs were repeated."""

    problems: list[str] = field(default_factory=list)
    finished: int = 0
    repeated: int = 0

    def add(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


def judge_keyed(lines: Iterable[Line], sent: int) -> KeyedVerdict:
    """Every record was finished, and no record began before the one before it was finished."""
    verdict = KeyedVerdict()
    begun: dict[int, float] = {}
    finished: dict[int, float] = {}
    by_process: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        by_process[line.pid].append(line)
    for process, journal in by_process.items():
        _judge_process(process, journal, verdict, begun, finished)
    for number in range(sent):
        before = number - KEYS
        if number not in finished:
            verdict.add(f"{name_of(number)} was never finished")
        elif before in finished and begun[number] < finished[before]:
            verdict.add(f"{name_of(number)} began before {name_of(before)} was finished")
    verdict.finished = len(finished)
    return verdict


def name_of(number: int) -> str:
    return f"record {place_of(number)} of key {key_of(number)}"


def judge_outputs(outputs: Iterable[int], sent: int) -> Iterator[str]:
    """Each record has one output, and those of a key are in order."""
    found: Mapping[int, list[int]] = defaultdict(list)
    for number in outputs:
        found[key_of(number)].append(number)
    for key in sorted({*found, *range(min(KEYS, sent))}):
        expected, numbers = list(range(key, sent, KEYS)), found[key]
        if numbers != expected:
            twice = sorted({number for number in numbers if numbers.count(number) > 1})
            missing = sorted(set(expected) - {*numbers})
            yield f"key {key}: outputs twice {twice[:5]}, missing {missing[:5]}, or out of order"


def _judge_process(
    process: int,
    journal: Sequence[Line],
    verdict: KeyedVerdict,
    begun: dict[int, float],
    finished: dict[int, float],
) -> None:
    """Check that no key is overtaken within an ownership; fill ``begun`` and ``finished``."""
    latest: dict[tuple[int, int], int] = {}
    running: dict[tuple[int, int], int] = {}
    for line in journal:
        number, partition = line.number, line.place[1]
        place = partition, key_of(number)
        if line.what in MOVES:
            for numbers in (latest, running):
                for other in [other for other in numbers if other[0] == partition]:
                    del numbers[other]
        elif line.what == "begin":
            if place in running:
                verdict.add(f"{process}: {name_of(number)} began while {running[place]} ran")
            if number < latest.get(place, -1):
                verdict.add(f"{process}: {name_of(number)} began after {latest[place]}")
            latest[place] = running[place] = number
            begun[number] = min(begun.get(number, line.at), line.at)
        else:
            running.pop(place, None)
            if line.what == "return":
                verdict.repeated += number in finished
                finished[number] = min(finished.get(number, line.at), line.at)
