"""What the owner of schedules does next, without a cluster and a clock."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from sharegroup.schedules.due_runs import LATE_MS, RUN_EXPIRES_MS, RUNS_TOGETHER, Board, Step
from sharegroup.schedules.schedule import Missed, ScheduleDefinition, StoredSchedule
from sharegroup.schedules.schedule_records import Intent, ScheduleCommand
from sharegroup.schedules.timing import Interval

MINUTE_MS = 60_000
NIGHTLY = ScheduleDefinition(
    name="nightly", revision=1, timing=Interval(MINUTE_MS), topic="reports"
)


def stored(missed: Missed = Missed.LAST, *, last_due_ms: int = 0) -> StoredSchedule:
    return StoredSchedule(definition=replace(NIGHTLY, missed=missed), last_due_ms=last_due_ms)


def command(intent: Intent, *, asked_ms: int = 1_000, revision: int = 1) -> ScheduleCommand:
    return ScheduleCommand(
        name="nightly", intent=intent, id="f00d", by="anna", asked_ms=asked_ms, revision=revision
    )


def done(board: Board, now_ms: int) -> Step:
    step = board.step(now_ms)
    board.apply(step)
    return step


def ids(step: Step) -> list[str]:
    return [run.id for run in step.runs]


def test_nothing_is_due_before_its_instant() -> None:
    board = Board([stored()])

    assert board.next_due_ms() == MINUTE_MS
    assert board.step(MINUTE_MS - 1).is_empty


def test_a_run_is_due_once() -> None:
    board = Board([stored()])

    assert ids(done(board, MINUTE_MS + 7)) == ["nightly@1970-01-01T00:01:00Z"]
    assert board.step(MINUTE_MS + 8).is_empty
    assert board.next_due_ms() == 2 * MINUTE_MS


def test_an_owner_whose_clock_is_behind_repeats_nothing() -> None:
    board = Board([stored()])
    done(board, 3 * MINUTE_MS)

    assert board.step(2 * MINUTE_MS).is_empty


def test_of_missed_runs_the_last_is_made() -> None:
    step = done(Board([stored(Missed.LAST)]), 10 * MINUTE_MS + 5)

    assert ids(step) == ["nightly@1970-01-01T00:10:00Z"]
    assert step.missed == (("nightly", 0, 10 * MINUTE_MS - 1),)


def test_a_late_run_is_skipped() -> None:
    late = StoredSchedule(
        definition=replace(NIGHTLY, missed=Missed.SKIP, timing=Interval(60 * MINUTE_MS)),
        last_due_ms=0,
    )
    step = done(Board([late]), 60 * MINUTE_MS + LATE_MS + 1)

    assert ids(step) == []
    assert step.missed == (("nightly", 0, 60 * MINUTE_MS),)
    assert ids(done(Board([late]), 60 * MINUTE_MS + LATE_MS)) == ["nightly@1970-01-01T01:00:00Z"]


def test_all_missed_runs_are_made_in_order_and_in_slices() -> None:
    board = Board([stored(Missed.ALL)])
    now_ms = (RUNS_TOGETHER + 2) * MINUTE_MS

    first, second = done(board, now_ms), done(board, now_ms)

    assert len(first.runs) == RUNS_TOGETHER
    assert [run.due_ms for run in second.runs] == [501 * MINUTE_MS, 502 * MINUTE_MS]
    assert board.step(now_ms).is_empty


@given(
    clocks=st.lists(st.integers(0, 200 * MINUTE_MS), min_size=1, max_size=30),
    lost=st.sets(st.integers(0, 29)),
)
def test_with_all_each_instant_is_run_once_whatever_the_clocks_say(
    clocks: list[int], lost: set[int]
) -> None:
    """Owners take over with clocks of their own, and some of their transactions are lost."""
    board, made = Board([stored(Missed.ALL)]), []
    for turn, now_ms in enumerate(clocks):
        step = board.step(now_ms)
        if turn not in lost:
            board.apply(step)
            made += [run.due_ms for run in step.runs]

    last = max([0, *made])
    assert made == list(range(MINUTE_MS, last + 1, MINUTE_MS))


def test_a_new_schedule_begins_at_its_declaration() -> None:
    board = Board([NIGHTLY])

    step = done(board, 90_000)

    assert ids(step) == []
    assert step.deleted == (b"declare/nightly/1",)
    assert board.schedules["nightly"].last_due_ms == 90_000
    assert board.next_due_ms() == 120_000


def test_an_older_or_equal_revision_changes_nothing() -> None:
    newer = StoredSchedule(definition=replace(NIGHTLY, revision=2), last_due_ms=0)
    for revision in (1, 2):
        board = Board([newer, replace(NIGHTLY, revision=revision, topic="elsewhere")])
        step = done(board, 1_000)
        assert step.deleted == (f"declare/nightly/{revision}".encode(),)
        assert board.schedules["nightly"] == newer


def test_a_newer_timing_begins_at_its_declaration() -> None:
    board = Board([stored(), replace(NIGHTLY, revision=2, timing=Interval(1_000))])

    # The run of the old timing was due before.
    assert ids(done(board, MINUTE_MS + 500)) == ["nightly@1970-01-01T00:01:00Z"]
    assert board.next_due_ms() == MINUTE_MS + 1_000


def test_a_newer_timing_repeats_nothing_if_the_clock_is_behind() -> None:
    newer = replace(NIGHTLY, revision=2, timing=Interval(30_000))
    board = Board([stored(last_due_ms=5 * MINUTE_MS), newer])
    done(board, MINUTE_MS)

    assert board.next_due_ms() == 5 * MINUTE_MS + 30_000


def test_a_pause_makes_no_runs_and_its_end_catches_up_nothing() -> None:
    board = Board([stored(Missed.ALL), command(Intent.PAUSE)])
    done(board, 1_000)
    assert board.schedules["nightly"].paused_by == "anna"
    assert board.next_due_ms() is None
    assert board.step(10 * MINUTE_MS).is_empty

    board.put(command(Intent.RESUME))
    assert ids(done(board, 10 * MINUTE_MS + 1)) == []
    assert board.next_due_ms() == 11 * MINUTE_MS


def test_a_resume_by_a_clock_that_is_behind_repeats_nothing() -> None:
    paused = replace(stored(last_due_ms=5 * MINUTE_MS), paused_by="anna")
    board = Board([paused, command(Intent.RESUME)])
    done(board, MINUTE_MS)

    assert board.next_due_ms() == 6 * MINUTE_MS


def test_a_command_runs_a_paused_schedule_once() -> None:
    board = Board([replace(stored(), paused_by="anna"), command(Intent.RUN, asked_ms=1_500)])

    step = done(board, 2_000)

    assert ids(step) == ["nightly@1970-01-01T00:00:01.500Z/f00d"]
    assert step.deleted == (b"command/nightly/f00d",)
    assert board.step(3_000).is_empty


def test_an_old_command_to_run_is_forgotten() -> None:
    board = Board([stored(last_due_ms=RUN_EXPIRES_MS), command(Intent.RUN, asked_ms=0)])

    step = done(board, RUN_EXPIRES_MS + 1)

    assert (step.runs, len(step.forgotten)) == ((), 1)
    assert board.step(RUN_EXPIRES_MS + 2).is_empty


def test_a_command_for_an_unknown_schedule_is_forgotten() -> None:
    step = done(Board([command(Intent.PAUSE)]), 2_000)

    assert (step.stored, len(step.forgotten)) == ((), 1)


def test_a_schedule_is_removed_unless_a_newer_revision_was_declared() -> None:
    board = Board([stored(), command(Intent.REMOVE, revision=1)])
    assert b"schedule/nightly" in done(board, 2_000).deleted
    assert board.schedules == {}

    newer = StoredSchedule(definition=replace(NIGHTLY, revision=2), last_due_ms=0)
    board = Board([newer, command(Intent.REMOVE, revision=1)])
    done(board, 2_000)
    assert board.schedules == {"nightly": newer}


def test_a_command_waits_if_its_declaration_leads_to_a_blocked_topic() -> None:
    board = Board([stored(), replace(NIGHTLY, revision=2, topic="bad"), command(Intent.RUN)])

    step = board.step(2_000, {"bad"})
    board.apply(step)
    assert (step.runs, step.deleted) == ((), (b"declare/nightly/2",))
    assert board.next_due_ms({"bad"}) is None

    assert [run.definition.topic for run in board.step(3_000).runs] == ["bad"]


def test_a_command_is_carried_out_if_its_declaration_leaves_a_blocked_topic() -> None:
    board = Board([stored(), replace(NIGHTLY, revision=2, topic="good"), command(Intent.RUN)])

    assert [run.definition.topic for run in board.step(2_000, {"reports"}).runs] == ["good"]


def test_a_schedule_that_cannot_be_read_is_neither_declared_nor_commanded() -> None:
    """A newer process may have stored it: this one would overwrite its revision."""
    board = Board([NIGHTLY, command(Intent.RUN)], {b"schedule/nightly"})
    board.put(command(Intent.PAUSE))

    assert board.next_due_ms() is None
    assert board.step(2_000).is_empty
