"""Did every record come to its end, and was every promise kept?

Three sources that know nothing of each other are compared: the journals of the processes, the
times at which processes died, and the topics as another client reads them.

    ends        a run that returned, or a letter; each record has one, and the right one
    victims     a letter of an honest record: never, unless five processes were killed around it
    copies      a record of one of the topics that workers read: each has an end or a successor
    twice       a record with more than one end: its copies were doubled between two writes
    overlaps    two runs of one copy at a time: never, unless the broker lost its locks, or the
                first process was frozen
    delays      a retry begins when it is due, or a little after it.  Two things explain more: the
                machine gave the process no processor, by its own pulse; or a record ran alone in
                the process, and it began no other.  Both explain the time that they took
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from sharegroup.worker.running.alone import (
    ACKNOWLEDGED_SECONDS,
    BEGIN_SECONDS,
    SETTLED_SECONDS,
    WAIT_SECONDS,
)
from tests.faults.worker_chaos.journal import ALONE, LOOP_LATE, STOOD_STILL, Line
from tests.faults.worker_chaos.records import (
    ATTEMPTS,
    CRUNCH,
    ENDS_DEAD,
    HANDLING_SECONDS_MAX,
    Kind,
    Sent,
)
from tests.faults.worker_chaos.stage import BROKER, OWN, Death
from tests.faults.worker_chaos.topics import Copy, Topics

EXHAUSTED = "deliveries-exhausted"
VICTIM_DEATHS = 5
"""So many processes that end around an honest record make a dead letter of it (ADR 0035): three
deliveries, and two more when it runs alone."""
BETWEEN_SECONDS = 5.0
"""How long before a doubled write its first one may have been begun."""
RECOVERY_SECONDS = 12.0
"""After a death: its partitions of the tiers move when the session has timed out, 10 s."""
ANY = ATTEMPTS + 1
"""In the place of a letter's failures, and behind all of them: letters come last."""
EARLY_MS_MAX = 1
"""Two clocks that are both cut to milliseconds."""
LATE_MS, LATE_SHARE = 100, 0.10
LATE_SHARE_MAX = 0.02
"""Of all retries that were measured: so many may be later than that.  The machine is others' too,
and what comes back after a death is handled with all that it has."""
BEFORE_ALONE_SECONDS = WAIT_SECONDS + ACKNOWLEDGED_SECONDS + BEGIN_SECONDS
AFTER_ALONE_SECONDS = SETTLED_SECONDS + ACKNOWLEDGED_SECONDS
ALONE_SECONDS_MAX = BEFORE_ALONE_SECONDS + HANDLING_SECONDS_MAX + AFTER_ALONE_SECONDS
"""The longest delay that one run alone explains; several explain more, one after the other."""
BEHIND_ALONE_SHARE_MAX = 0.5
"""Of all retries that were measured: so many may be late because of runs alone."""
ENDS_A_RUN = frozenset({"return", "raise"})

Span = tuple[float, float]
Place = tuple[str, int, int]


class Run(NamedTuple):
    """One call of a handler."""

    number: int
    place: tuple[str, int, int]
    pid: int
    begin: float
    end: float


@dataclass(slots=True)
class Delays:
    """How late retries were that waited while nothing was out of order."""

    measured: int = 0
    late: int = 0
    """Later than what is promised."""
    loop_busy: int = 0
    """Of those, while the event loop of their process did other things, which is no excuse."""
    late_ms: list[int] = field(default_factory=list)
    behind_alone_ms: list[int] = field(default_factory=list)
    """Of those later than that, because others ran alone in the process when they were due."""

    def quantile(self, share: float) -> int:
        ordered = sorted(self.late_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


@dataclass(slots=True)
class Verdict:
    """What a trial showed; `problems` is empty when every promise was kept."""

    problems: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    runs_cut: int = 0
    """Runs that a death ended."""
    run_again: int = 0
    """Runs of copies that had returned before, and whose acceptance a death swallowed."""
    twice: list[int] = field(default_factory=list)
    """The numbers of the records that ended more than once, each explained by a death."""
    overlaps: int = 0
    """Two runs at a time of a record whose lock the broker had forgotten when it died, or whose
    process was frozen until the lock was over."""
    victims: int = 0
    """Good records among the dead letters: delivered too often, to processes that died."""
    delays: Delays = field(default_factory=Delays)

    def lines(self) -> Iterator[str]:
        """For people."""
        ends = ", ".join(f"{name} {count}" for name, count in sorted(self.ends.items()))
        yield f"ends                 {ends}"
        yield f"runs                 {self.runs}, cut off by a death {self.runs_cut}"
        yield f"run again            {self.run_again}: their acceptance was lost with a process"
        yield f"ended twice          {len(self.twice)}: {self.twice}"
        yield f"overlaps             {self.overlaps} after the broker died, or a process was frozen"
        yield f"victims              {self.victims} good records among the dead letters"
        late = self.delays
        yield (
            f"retries measured     {late.measured}, late by ms: p50 {late.quantile(0.5)}, "
            f"p99 {late.quantile(0.99)}, max {late.quantile(1)}; later than promised {late.late} "
            f"({late.loop_busy} while the event loop was busy); "
            f"behind records that ran alone {len(late.behind_alone_ms)}, by at most "
            f"{max(late.behind_alone_ms, default=0)}"
        )


def verdict(
    records: Sequence[Sent],
    lines: Sequence[Line],
    deaths: Sequence[Death],
    topics: Topics,
    *,
    punctual: bool = True,
    calm_at: float = 0.0,
) -> Verdict:
    """Everything; problems are said in words, with the record's number.

    ``deaths`` are those of processes, and the times in which processes were frozen.
    ``punctual``: retries must not be late either, from ``calm_at`` on; one that is early is a
    problem in any case.
    """
    return _Court(records, lines, deaths, topics).judge(punctual=punctual, calm_at=calm_at)


class _Court:
    def __init__(
        self,
        records: Sequence[Sent],
        lines: Sequence[Line],
        deaths: Sequence[Death],
        topics: Topics,
    ) -> None:
        self.records = records
        self.lines = lines
        self.deaths = deaths
        self.topics = topics
        self.found = Verdict()
        # Wall and monotonic clock of one machine: their distance is the same all the time.
        self.wall_offset_ms = time.time_ns() // 1_000_000 - round(time.monotonic() * 1000)
        self.by_number: dict[int, list[Line]] = defaultdict(list)
        for line in lines:
            self.by_number[line.number].append(line)
        # Their next run has to wait for the next process, which takes as long as it takes.
        self.crashing = {record.number for record in records if record.kind is Kind.CRASHING}
        self.still = _spans(lines, STOOD_STILL)
        self.busy = _spans(lines, LOOP_LATE)
        self.alone = times_alone(lines)
        self.put_aside = {line.place for line in lines if line.what == "record.put_aside"}
        self.letters: dict[int, list[Copy]] = defaultdict(list)
        for letter in topics.letters:
            self.letters[letter.number].append(letter)

    def judge(self, *, punctual: bool, calm_at: float) -> Verdict:
        for record in self.records:
            self._judge_ends(record)
        self._judge_copies()
        self._judge_doubles()
        self._judge_runs()
        self._judge_delays(punctual=punctual, calm_at=calm_at)
        return self.found

    # Ends.

    def _judge_ends(self, sent: Sent) -> None:
        returned = {line.place for line in self.by_number[sent.number] if line.what == "return"}
        letters = self.letters[sent.number]
        ends = len(returned) + len(letters)
        if not ends:
            self._problem(f"{sent.number} ({sent.kind}) has no end: {self._story(sent.number)}")
            return
        if ends > 1:
            self.found.twice.append(sent.number)
        if returned:
            self.found.ends["accepted"] += 1
        elif letters:
            self.found.ends[letters[0].reason] += 1
        must = ENDS_DEAD.get(sent.kind)
        if must is not None and returned:
            self._problem(f"{sent.number} ({sent.kind}) returned, expected a letter: {must}")
        for letter in letters:
            if letter.reason not in {must, EXHAUSTED}:
                self._problem(f"{sent.number} ({sent.kind}) is dead for {letter.reason!r}: {must}")
            elif must is None:
                self.found.victims += 1
                if self._processes_that_died_around(sent.number) < VICTIM_DEATHS:
                    self._problem(
                        f"{sent.number} ({sent.kind}) is honest and has a dead letter: "
                        f"{self._story(sent.number)}"
                    )

    def _processes_that_died_around(self, number: int) -> int:
        """How many processes ended before what became of their run of this record was settled."""
        begins = [line for line in self.by_number[number] if line.what == "begin"]
        return len(
            {
                line.pid
                for line in begins
                if self._death_of({line.pid}, line.at, line.at + AFTER_ALONE_SECONDS)
            }
        )

    # Copies: what workers or schedulers read has an end, or was written on.

    def _judge_copies(self) -> None:
        returned = {line.place for line in self.lines if line.what == "return"}
        later: dict[int, list[Copy]] = defaultdict(list)
        for copy in [*self.topics.tiers, *self.topics.own]:  # What is due at once skips the tiers.
            later[copy.number].append(copy)
        for copy in [*self.topics.sources, *self.topics.own]:
            buried = any(letter.failures >= copy.failures for letter in self.letters[copy.number])
            # With more failures, or put aside with as many, because the worker died around it.
            postponed = any(
                later_copy.failures > copy.failures
                or (later_copy.failures == copy.failures and later_copy.place != copy.place)
                for later_copy in later[copy.number]
                if later_copy.timestamp_ms >= copy.timestamp_ms
            )
            if copy.place not in returned and not buried and not postponed:
                self._problem(f"{copy.number}: its copy {copy.place} has no end and no successor")
        arrived = Counter((copy.number, copy.failures) for copy in self.topics.own)
        for copy in self.topics.tiers:
            if not arrived[copy.number, copy.failures]:
                self._problem(f"{copy.number}: its copy {copy.place} never came out of the tiers")

    # Doubles.

    def _judge_doubles(self) -> None:
        """Copies that are there twice: in the tiers one would not see it, for a record may
        pass a tier several times; but each copy of it comes out to the group's own topic."""
        same: dict[tuple[int, int, str], list[Copy]] = defaultdict(list)
        for copy in self.topics.own:
            if copy.place not in self.put_aside:  # Its next copy takes its place.
                same[copy.number, copy.failures, copy.topic].append(copy)
        for letter in self.topics.letters:  # The second one may have another reason.
            same[letter.number, ANY, letter.topic].append(letter)
        doubled: dict[int, int] = {}
        for (number, _, topic), copies in sorted(same.items()):
            more = len(copies) > doubled.get(number, 1)
            if more and not self._death_explains(copies):
                times = [copy.timestamp_ms for copy in copies]
                self._problem(
                    f"{number} was written to {topic} {len(copies)} times, at {times}, and "
                    f"nobody died: {self._story(number)}"
                )
            doubled[number] = max(len(copies), doubled.get(number, 1))
        for number in self.found.twice:
            if doubled.get(number, 1) == 1 and not self._returned_and_written(number):
                self._problem(f"{number} ended twice without a doubled copy: {self._story(number)}")

    def _returned_and_written(self, number: int) -> bool:
        """A run returned, its process died, and the next one failed or was one too many."""
        runs = [line for line in self.by_number[number] if line.what == "return"]
        return any(
            # That handler has a process of its own; nobody knows of which worker.
            self._death_of(
                None if line.place[0] == CRUNCH else {line.pid}, line.at, line.at + BETWEEN_SECONDS
            )
            for line in runs
        )

    def _death_explains(self, copies: Sequence[Copy]) -> bool:
        """Whether the broker died between the two writes, or a worker that may have written one.

        Who writes a letter says so, unless it dies before.  Of what schedulers write nobody
        knows which of them it was.
        """
        number, failures = copies[0].number, copies[0].failures
        times = [copy.timestamp_ms for copy in copies] + [
            tier.timestamp_ms
            for tier in self.topics.tiers
            if (tier.number, tier.failures) == (number, failures)
        ]
        begin = (min(times) - self.wall_offset_ms) / 1000 - BETWEEN_SECONDS
        end = (max(times) - self.wall_offset_ms) / 1000
        told = [line.pid for line in self.by_number[number] if line.what == "record.dead_lettered"]
        by_anyone = copies[0] in self.topics.own or len(told) < len(copies)
        return self._death_of(None if by_anyone else set(told), begin, end)

    def _death_of(self, pids: set[int] | None, begin: float, end: float) -> bool:
        """Whether the broker or one of these workers died then; None: any worker."""
        return any(
            begin <= death.seen and death.at <= end
            for death in self.deaths
            if death.pid == BROKER or pids is None or death.pid in pids
        )

    # Runs.

    def _judge_runs(self) -> None:
        by_place: dict[tuple[str, int, int], list[Run]] = defaultdict(list)
        for run in self._runs():
            by_place[run.place].append(run)
        self.found.runs = sum(map(len, by_place.values()))
        for runs in by_place.values():
            for first, second in pairwise(sorted(runs, key=lambda run: run.begin)):
                self._judge_pair(first, second)
        returned = Counter(line.place for line in self.lines if line.what == "return")
        self.found.run_again = sum(count - 1 for count in returned.values())

    def _judge_pair(self, first: Run, second: Run) -> None:
        if second.begin >= first.end:
            return
        if any(
            first.begin <= death.seen and death.at <= second.begin
            for death in self.deaths
            if death.pid in (BROKER, first.pid)
        ):
            self.found.overlaps += 1
            return
        self._problem(
            f"{first.number} ran twice at a time: {first} and {second}: {self._story(first.number)}"
        )

    def _runs(self) -> Iterator[Run]:
        """A run without an end was cut off with its process: its last sign of life is its end."""
        last_sign = {line.pid: line.at for line in self.lines}
        under_way: dict[tuple[int, int, tuple[str, int, int]], Line] = {}
        for line in self.lines:
            where = line.pid, line.number, line.place
            if line.what == "begin":
                under_way[where] = line
            elif line.what in ENDS_A_RUN and where in under_way:
                begin = under_way.pop(where)
                yield Run(line.number, line.place, line.pid, begin.at, line.at)
        dead = {death.pid for death in self.deaths}
        for (pid, number, place), begin in under_way.items():
            self.found.runs_cut += 1
            yield Run(number, place, pid, begin.at, last_sign[pid] if pid in dead else begin.at)

    # Delays.

    def _judge_delays(self, *, punctual: bool, calm_at: float) -> None:
        late: list[str] = []
        first: dict[tuple[int, int], Line] = {}
        for line in self.lines:
            if line.what == "begin" and line.due_ms is not None and line.failed_ms is not None:
                first.setdefault((line.number, line.attempt), line)
        for line in first.values():
            assert line.due_ms is not None
            assert line.failed_ms is not None
            late_ms, delay_ms = line.wall_ms - line.due_ms, line.due_ms - line.failed_ms
            if late_ms < -EARLY_MS_MAX:
                self._problem(f"{line.number}: attempt {line.attempt} {-late_ms} ms too early")
            waited = (line.failed_ms - self.wall_offset_ms) / 1000
            if (
                line.number in self.crashing
                or waited < calm_at
                or self._was_disturbed(waited, line.at, in_tiers=line.place[0] == OWN)
            ):
                continue
            self._judge_delay(line, late_ms, delay_ms, late)
        delays = self.found.delays
        delays.late = len(late)
        if punctual and len(late) > LATE_SHARE_MAX * delays.measured:
            for text in late:
                self._problem(text)
        behind = len(delays.behind_alone_ms)
        if punctual and behind > BEHIND_ALONE_SHARE_MAX * delays.measured:
            self._problem(
                f"{behind} of {delays.measured} retries were late because of runs alone; expected "
                f"a share of {BEHIND_ALONE_SHARE_MAX} at most"
            )

    def _judge_delay(self, line: Line, late_ms: int, delay_ms: int, late: list[str]) -> None:
        """Count this delay, and say in ``late`` if nothing explains it."""
        begin = line.at - late_ms / 1000
        # Which process is known for a retry that waited in one.
        still = [span for pid, span in self.still if pid == line.pid or line.place[0] == OWN]
        promised_ms = max(LATE_MS, LATE_SHARE * delay_ms)
        unexplained_ms = late_ms - _covered_ms(still, begin, line.at)
        delays = self.found.delays
        delays.measured += 1
        delays.late_ms.append(unexplained_ms)
        if unexplained_ms <= promised_ms:
            return
        alone = self.alone.get(line.pid, [])
        unexplained_ms = late_ms - _covered_ms([*still, *alone], begin, line.at)
        if unexplained_ms <= promised_ms:
            delays.behind_alone_ms.append(late_ms)
        else:
            busy = [span for pid, span in self.busy if pid == line.pid]
            rest_ms = late_ms - _covered_ms([*still, *alone, *busy], begin, line.at)
            delays.loop_busy += rest_ms <= promised_ms
            late.append(
                f"{line.number}: attempt {line.attempt} {unexplained_ms} ms late after a delay of "
                f"{delay_ms} ms, without {late_ms - unexplained_ms} ms that are explained"
            )

    def _was_disturbed(self, begin: float, end: float, *, in_tiers: bool) -> bool:
        """Whether something was out of order while a record waited.

        One that waits in its worker needs the broker for nothing but its lock.  One in the tiers
        needs the process that owns its partition: when that dies, the next one owns it when the
        session has timed out.
        """
        return any(
            death.at <= end and begin <= death.back + (RECOVERY_SECONDS if in_tiers else 0.0)
            for death in self.deaths
            if in_tiers or death.pid == BROKER
        )

    # Words.

    def _problem(self, text: str) -> None:
        self.found.problems.append(text)

    def _story(self, number: int) -> list[str]:
        """What the journals say of a record."""
        return [
            f"{line.at:.3f} pid {line.pid} {line.what} {line.place} attempt {line.attempt} "
            f"delivery {line.delivery_count} {line.error}"
            for line in self.by_number[number]
        ]


def _spans(lines: Iterable[Line], what: str) -> list[tuple[int, Span]]:
    """When the pulse or the event loop of a process was late, by its process."""
    return [
        (line.pid, (line.at - float(line.error), line.at)) for line in lines if line.what == what
    ]


def _covered_ms(spans: Iterable[Span], begin: float, end: float) -> int:
    """The part of this time that the spans cover, each moment once."""
    seconds = 0.0
    for first, last in sorted(spans):
        begin = max(begin, first)
        if begin < min(last, end):
            seconds += min(last, end) - begin
            begin = min(last, end)
    return round(1000 * seconds)


def times_alone(lines: Sequence[Line]) -> Mapping[int, list[Span]]:
    """When each process began no handler because of a run alone.

    That is around the run, and before a record was put aside because its turn did not come.  The
    begin of another record shows that the process was open still, or again.
    """
    begins: dict[int, list[float]] = defaultdict(list)
    begun: dict[Place, Line] = {}
    is_alone: set[Place] = set()
    last_sign = {line.pid: line.at for line in lines}
    spans: list[tuple[Line, float]] = []
    for line in lines:
        if line.what == ALONE:
            if (killed := begun.get(line.place)) is not None:
                spans.append((killed, last_sign[killed.pid]))
            begun[line.place] = line
            is_alone.add(line.place)
        elif line.what == "begin" and line.place in is_alone:
            is_alone.remove(line.place)
        elif line.what == "begin":
            begins[line.pid].append(line.at)
        elif line.what == "record.put_aside":
            spans.append((line, line.at))
        elif line.what in ENDS_A_RUN and line.place in begun:
            spans.append((begun.pop(line.place), line.at + AFTER_ALONE_SECONDS))
    spans += [(line, last_sign[line.pid]) for line in begun.values()]
    found: dict[int, list[Span]] = defaultdict(list)
    for line, end in spans:
        begin, others = line.at - BEFORE_ALONE_SECONDS, begins[line.pid]
        end = min(end, begin + ALONE_SECONDS_MAX)
        before, after = bisect_left(others, line.at), bisect_right(others, line.at)
        begin = max([begin, *others[before - 1 : before]])
        found[line.pid].append((begin, min([end, *others[after : after + 1]])))
    return found
