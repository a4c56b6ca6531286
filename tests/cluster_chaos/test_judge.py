"""The judge finds each broken promise in a journal that was written by hand."""

from __future__ import annotations

import pytest

from tests.cluster_chaos.judge import (
    DIED,
    LATE,
    RELEASED,
    STALE,
    Account,
    Produced,
    Window,
    judge_group,
    judge_idle,
    judge_letters,
    judge_reruns,
    longest_pause,
    produced,
    recovery_seconds,
)
from tests.cluster_chaos.plan import Kind
from tests.faults.worker_chaos.journal import Line
from tests.faults.worker_chaos.stage import Death

PLACE = ("plain", 0, 5)
WANTED = Produced(frozenset({7}), {7: PLACE}, {})


def line(
    pid: int,
    what: str,
    at: float,
    *,
    number: int = -1,
    place: tuple[str, int, int] = PLACE,
    count: int = 1,
    error: str = "",
    fetched_at: float | None = None,
) -> Line:
    fetched = at if fetched_at is None else fetched_at
    return Line(pid, what, at, 0, number, 0, count, place, None, None, error, fetched)


def got(pid: int, at: float, **more: object) -> Line:
    return line(pid, "got", at, number=7, **more)  # type: ignore[arg-type]


def account(
    *lines: Line,
    wanted: Produced = WANTED,
    deaths: tuple[Death, ...] = (),
    windows: tuple[Window, ...] = (),
) -> Account:
    """Lines of the pids 1 and 2, which are the members "a" and "b"."""
    members = {
        "a": [entry for entry in lines if entry.pid == 1],
        "b": [entry for entry in lines if entry.pid == 2],
    }
    return judge_group(wanted, members, deaths, windows, deliveries_max=10)


def kinds(found: Account) -> list[str]:
    return [problem.partition(":")[0] for problem in found.problems]


def test_record_delivered_and_accepted_once_is_no_problem() -> None:
    found = account(got(1, 1.0), line(1, "accepted", 2.0))
    assert found.problems == []
    assert (found.sent, found.confirmed, found.seen, found.deliveries) == (1, 1, 1, 1)
    assert not +found.doubles


def test_confirmed_record_without_a_delivery_is_lost() -> None:
    found = account()
    assert found.lost == [7]
    assert kinds(found) == ["lost"]


def test_record_confirmed_without_an_offset_may_have_any_in_its_partition() -> None:
    unknown = Produced(frozenset({7}), {7: ("plain", 0, -1)}, {})
    given = (got(1, 1.0), line(1, "accepted", 2.0))
    assert not account(*given, wanted=unknown).problems
    elsewhere = Produced(frozenset({7}), {7: ("plain", 3, -1)}, {})
    for wanted, lines in ((unknown, ()), (elsewhere, given)):
        found = account(*lines, wanted=wanted)
        assert found.lost == [7]
        assert found.problems[0].startswith("lost: 7 at")


def test_refused_record_may_be_delivered_or_not() -> None:
    refused = Produced(frozenset({7}), {}, {7: "RequestTimedOut()"})
    assert account(wanted=refused).problems == []
    seen = account(got(1, 1.0), line(1, "accepted", 2.0), wanted=refused)
    assert seen.problems == []


def test_a_record_that_was_never_sent_is_strange() -> None:
    nothing = Produced(frozenset(), {}, {})
    assert kinds(account(got(1, 1.0), line(1, "accepted", 2.0), wanted=nothing)) == ["strange"]


def test_redelivery_after_a_confirmed_accept_is_found() -> None:
    found = account(
        got(1, 1.0),
        line(1, "accepted", 2.0),
        got(2, 3.0, count=2),
        line(2, "failed", 4.0, error="InvalidRecordState"),
    )
    assert kinds(found) == ["returned"]


def test_a_second_confirmed_accept_is_found_even_while_nodes_are_separated() -> None:
    window = Window(Kind.ISOLATE, 0.0, 10.0)
    lines = (got(1, 1.0), line(1, "accepted", 2.0), got(2, 3.0), line(2, "accepted", 4.0))
    assert kinds(account(*lines, windows=(window,))) == ["returned"]


def test_an_accept_by_a_member_whose_lock_has_ended_is_counted() -> None:
    found = account(got(1, 1.0), got(2, 12.0), line(2, "accepted", 13.0), line(1, "accepted", 16.0))
    assert found.problems == []
    assert +found.doubles == {LATE: 1}


@pytest.mark.parametrize(
    ("window", "forgiven"),
    [
        (Window(Kind.ISOLATE, 0.0, 10.0), True),
        (Window(Kind.FREEZE, 90.0, 95.0), True),
        (Window(Kind.FREEZE, 80.0, 84.0), False),
        (Window(Kind.KILL, 99.0, 101.0), False),
        (Window(Kind.ISOLATE, 101.0, 110.0), False),
    ],
)
def test_a_stale_leader_is_forgiven_only_while_it_may_be_one(
    window: Window, forgiven: bool
) -> None:
    moved = Window(window.kind, window.begin, window.end)
    shift = 98.0 if window.end > 20 else 0.0
    found = account(
        got(1, 1.0 + shift),
        line(1, "accepted", 1.5 + shift),
        got(2, 2.0 + shift),
        line(2, "failed", 3.0 + shift, error="NotLeaderOrFollower"),
        windows=(moved,),
    )
    assert (found.problems == []) == forgiven
    assert found.doubles[STALE] == int(forgiven)


def test_double_fetched_before_the_accept_needs_a_fault_in_between() -> None:
    lines = (
        got(1, 1.0),
        line(1, "accepted", 2.0),
        got(2, 3.0, fetched_at=0.5),
        line(2, "failed", 4.0, error="NotLeaderOrFollower"),
    )
    assert kinds(account(*lines)) == ["returned"]
    assert account(*lines, windows=(Window(Kind.KILL, 0.6, 0.9),)).problems == []


@pytest.mark.parametrize("error", ["InvalidRecordState", "NetworkException", "NoAnswer"])
def test_a_double_whose_first_delivery_was_reported_as_failed_is_explained(error: str) -> None:
    found = account(
        got(1, 1.0), line(1, "failed", 2.0, error=error), got(2, 3.0), line(2, "accepted", 4.0)
    )
    assert found.problems == []
    assert +found.doubles == {error: 1}


def test_a_double_for_an_error_that_is_not_listed_is_found() -> None:
    found = account(
        got(1, 1.0),
        line(1, "failed", 2.0, error="CorruptMessage"),
        got(2, 3.0),
        line(2, "accepted", 4.0),
    )
    assert kinds(found) == ["unexplained"]


def test_a_double_after_a_release_or_a_death_is_explained() -> None:
    lines = (
        got(1, 1.0), line(1, "released", 2.0), got(1, 3.0), got(2, 9.0), line(2, "accepted", 9.5)
    )  # fmt: skip
    found = account(*lines, deaths=(Death(1, 4.0, 5.0, 5.0),))
    assert found.problems == []
    assert +found.doubles == {RELEASED: 1, DIED: 1}


def test_delivery_without_a_report_is_found() -> None:
    found = account(got(1, 1.0), got(2, 3.0), line(2, "accepted", 4.0))
    assert kinds(found) == ["unreported", "unexplained"]


def test_record_delivered_and_never_accepted_is_found() -> None:
    found = account(got(1, 1.0), line(1, "failed", 2.0, error="InvalidRecordState"))
    assert kinds(found) == ["unfinished"]
    doubtful = account(got(1, 1.0), line(1, "failed", 2.0, error="NetworkException"))
    assert doubtful.problems == []


def test_record_at_the_delivery_limit_is_exhausted() -> None:
    found = account(got(1, 1.0, count=10), line(1, "failed", 2.0, error="InvalidRecordState"))
    assert (found.problems, found.exhausted) == ([], [7])


def test_a_number_at_two_places_was_written_twice() -> None:
    other = ("plain", 0, 6)
    lines = [
        got(1, 1.0),
        line(1, "accepted", 2.0),
        got(1, 3.0, place=other),
        line(1, "accepted", 4.0, place=other),
    ]
    assert kinds(account(*lines)) == ["doubled"]
    theirs = judge_group(WANTED, {"a": lines}, (), (), deliveries_max=10, is_ours=lambda n: n != 7)
    assert (theirs.problems, theirs.written_twice) == ([], 1)


def test_a_second_delivery_to_the_same_member_takes_the_outcome() -> None:
    found = account(
        got(1, 1.0),
        got(1, 15.0, count=2),
        line(1, "failed", 16.0, error="InvalidRecordState"),
        line(1, "accepted", 17.0),
    )
    assert found.problems == []
    assert +found.doubles == {"InvalidRecordState": 1}


def test_an_idle_member_is_found() -> None:
    streams = {"a": [1.0, 40.0, 90.0], "b": [1.0, 20.0]}
    assert judge_idle(streams, 10.0, 95.0) == [
        "idle: b was given nothing for 75 s after the last fault"
    ]
    assert judge_idle({"c": []}, 0.0, 75.0) == [
        "idle: c was given nothing for 75 s after the last fault"
    ]


def test_pauses_count_from_the_first_moment_to_the_last() -> None:
    assert longest_pause([], 0.0, 5.0) == 5.0
    assert longest_pause([1.0, 2.0, 9.0], 0.0, 10.0) == 7.0
    assert longest_pause([-3.0, 1.0, 12.0], 0.0, 10.0) == 9.0


def test_recovery_is_the_first_record_after_a_fault() -> None:
    assert recovery_seconds({"a": [1.0, 5.0], "b": [1.0]}, 3.0) == {"a": 2.0, "b": -1.0}


def test_missing_offset_of_either_producer_is_unknown() -> None:
    lines = [
        line(1, "confirmed", 1.0, number=number, place=("plain", 0, offset))  # type: ignore[arg-type]
        for number, offset in ((7, -1), (8, None), (9, 5))
    ]
    places = produced(lines, "plain").confirmed
    assert [place[2] for place in places.values()] == [-1, -1, 5]


def test_lines_of_producers_are_read_by_topic() -> None:
    lines = [
        line(1, "sent", 1.0, number=1, place=("plain", -1, -1)),
        line(1, "sent", 1.0, number=2, place=("plain", -1, -1)),
        line(1, "sent", 1.0, number=3, place=("jobs", -1, -1)),
        line(1, "confirmed", 2.0, number=1, place=("plain", 0, 0)),
        line(1, "refused", 3.0, number=2, place=("plain", -1, -1), error="late"),
    ]
    found = produced(lines, "plain")
    assert found == Produced(frozenset({1, 2}), {1: ("plain", 0, 0)}, {2: "late"})


def test_a_handler_that_ran_again_needs_a_reason() -> None:
    story = [line(1, "begin", 1.0), line(1, "return", 2.0), line(2, "begin", 20.0)]
    assert judge_reruns(story, [], "refused")[0] == {"unexplained": 1}
    assert len(judge_reruns(story, [], "refused")[1]) == 1
    refused = line(1, "refused", 21.0, place=("plain", 0, 3), error="NetworkException")
    assert judge_reruns([*story, refused], [], "refused") == ({"NetworkException": 1}, [])
    assert judge_reruns(story, [Death(1, 3.0, 3.1, 3.1)], "refused") == ({DIED: 1}, [])
    assert len(judge_reruns(story, [Death(3, 3.0, 3.1, 3.1)], "refused")[1]) == 1
    other = line(1, "refused", 21.0, place=("plain", 1, 3), error="NetworkException")
    assert len(judge_reruns([*story, other], [], "refused")[1]) == 1


def test_each_dead_letter_needs_the_event_of_a_worker() -> None:
    told = line(1, "record.dead_lettered", 2.0, number=7)
    story = [line(1, "begin", 1.0, number=7), told]
    assert judge_letters({7: 1}, story, [], {}) == ({}, [])
    assert len(judge_letters({7: 2}, story, [], {})[1]) == 1
    assert judge_letters({7: 2}, [*story, told], [], {}) == ({"delivered again": 1}, [])
    assert judge_letters({7: 2}, story, [Death(1, 3.0, 3.1, 3.1)], {}) == ({DIED: 1}, [])
    lost = line(1, "record.lock_lost", 1.5, number=7)
    assert judge_letters({7: 2}, [*story, lost], [], {}) == ({"lock lost": 1}, [])
    nameless = line(1, "record.dead_lettered", 2.0)
    assert judge_letters({7: 1}, [nameless], [], {PLACE: 7}) == ({}, [])
    assert len(judge_letters({7: 1}, [nameless], [], {})[1]) == 1
