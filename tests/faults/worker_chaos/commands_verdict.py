"""Judges what became of commands, and of the runs of schedules, by the journals and the topics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from sharegroup.schedules.schedule import parsed_run
from tests.faults.worker_chaos.commands import DONE, Given
from tests.faults.worker_chaos.journal import Line
from tests.faults.worker_chaos.names import STEERED_SCHEDULES

ANSWER_SECONDS_MAX = 90.0
"""The longest of them looks for a waiting record that moves, while the broker is away."""
STOP_SECONDS_MAX = 20.0
KILLED, CRASHED = -9, 66
MARGIN_SECONDS = 1.5
"""Around an answer: an effect is written a moment before it, and due times are whole seconds."""


def judge_answers(given: Sequence[Given]) -> Iterator[str]:
    """Each command ends, in a bounded time."""
    for command in given:
        if command.answered - command.asked > ANSWER_SECONDS_MAX:
            yield f"{command} was answered too late"


def judge_runs(
    runs: Counter[str], handled: Collection[str], given: Sequence[Given], wall_offset: float
) -> Iterator[str]:
    """Each due second is one run, but for a schedule in its pauses; each run was handled."""
    yield from (f"run {run} was written {count} times" for run, count in runs.items() if count > 1)
    steered = {f"s{number}" for number in range(STEERED_SCHEDULES)}
    due: dict[str, list[int]] = defaultdict(list)
    asked: Counter[str] = Counter()
    for text in runs:
        run = parsed_run(text)
        assert run is not None, text
        if "/" in text:
            asked[run.schedule] += 1
        else:
            due[run.schedule].append(round(run.due.timestamp()))
    last = max(chain.from_iterable(due.values()))
    yield from (
        f"run {text} was not handled"
        for text in runs.keys() - set(handled)
        if (run := parsed_run(text)) is not None and run.due.timestamp() < last - 10
    )
    for name in sorted({*due, *asked}):
        seconds = due[name]
        if name not in steered:
            missing = set(range(min(seconds), max(seconds) + 1)) - {*seconds}
            if missing:
                yield f"schedule {name} has no runs of {sorted(missing)[:5]}"
        else:
            commands = [command for command in given if command.of == name]
            yield from _judge_steered(name, set(seconds), commands, asked[name], wall_offset)


def _judge_steered(
    name: str, seconds: set[int], commands: Sequence[Given], asked: int, wall_offset: float
) -> Iterator[str]:
    outcomes = Counter(command.outcome for command in commands if command.what == "run")
    least, most = outcomes[DONE], outcomes.total()
    if not least <= asked <= most:
        yield f"schedule {name} was run by command {asked} times; expected {least} to {most}"
    states = [command for command in commands if command.what in ("pause", "resume")]
    for command, following in pairwise(states):
        if command.outcome != DONE:
            continue
        first = command.answered + wall_offset + MARGIN_SECONDS
        end = following.asked + wall_offset - MARGIN_SECONDS
        within = {second for second in seconds if first <= second < end}
        if command.what == "pause" and within:
            yield f"schedule {name} ran at {sorted(within)[:5]} in the pause of {command}"
        elif command.what == "resume":
            missing = set(range(round(first) + 1, round(end) - 1)) - within
            if missing:
                yield f"schedule {name} did not run at {sorted(missing)[:5]} after {command}"


def judge_workers(
    given: Sequence[Given],
    begins: Mapping[int, Sequence[float]],
    ended: Mapping[int, tuple[float, int]],
) -> Iterator[str]:
    """A quiet process begins nothing, and one that was told to stop has stopped.

    ``ended`` has the time and the exit code of each process that ended, by its id.
    """
    by_pid: dict[str, list[Given]] = defaultdict(list)
    for command in given:
        if command.what in ("quiet", "resume", "stop"):
            by_pid[command.of].append(command)
    for pid, commands in by_pid.items():
        ends = [command.asked for command in commands[1:]] + [commands[-1].answered]
        for command, until in zip(commands, ends, strict=True):
            if command.outcome != DONE:
                continue
            if command.what == "quiet":
                begun = [at for at in begins.get(int(pid), ()) if command.answered < at < until]
                if begun:
                    yield f"process {pid} began {len(begun)} records after {command}: {begun[:5]}"
            elif command.what == "stop":
                at, _ = ended.get(int(pid), (float("inf"), 0))
                if at > command.answered + STOP_SECONDS_MAX:
                    yield f"process {pid} ended at {at} after {command}"


def judge_exits(given: Sequence[Given], ended: Mapping[int, tuple[float, int]]) -> Iterator[str]:
    """A process ends by a signal, by its handler, or because it was told to stop."""
    stopped = {command.of for command in given if command.what == "stop"}
    for pid, (at, code) in ended.items():
        if code == 0 and str(pid) not in stopped:
            yield f"process {pid} stopped at {at}, and nobody had asked for it"
        elif code not in (0, KILLED, CRASHED):
            yield f"process {pid} ended at {at} with {code}"


def judge_waiting(
    sent: Collection[int], lines: Sequence[Line], cancelled: Collection[int], given: Sequence[Given]
) -> Iterator[str]:
    """Each waiting record has run or is a letter, never both, and as its command was answered.

    A letter may be there twice: a process that dies before its acknowledgement leaves it to others.
    One that dies when it has written a waiting record makes a second one, which has its own end.
    """
    first_runs = Counter(
        line.number for line in lines if line.what == "begin" and line.attempt == 1
    )
    ran = {line.number for line in lines if line.what == "begin" and line.attempt > 1}
    returned = {line.number for line in lines if line.what == "return"}
    outcomes: dict[int, set[str]] = defaultdict(set)
    for command in given:
        is_of_record = command.what in ("run", "cancel") and command.of.isdecimal()
        if is_of_record and command.outcome == DONE:
            outcomes[int(command.of)].add(command.what)
    for number in sent:
        is_letter = number in cancelled
        if first_runs[number] > 1 and (number in returned or is_letter):
            continue
        if (number in returned) == is_letter or (number in ran and is_letter):
            yield (
                f"waiting record {number}: {'a' if is_letter else 'no'} letter, "
                f"{'ran' if number in ran else 'did not run'}; expected one end"
            )
        if outcomes[number] - {"cancel" if is_letter else "run"}:
            yield f"waiting record {number}: commands {outcomes[number]} were done"
