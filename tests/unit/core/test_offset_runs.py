"""Runs stay total, joined and in order, whatever is laid over them."""

from __future__ import annotations

import pytest

from sharegroup.core.delivery.offset_runs import SPLICES_MAX, OffsetRuns, Run


def runs_of(*parts: tuple[int, str], start: int = 0) -> OffsetRuns[str]:
    runs: OffsetRuns[str] = OffsetRuns(start)
    for end, value in parts:
        runs.append(end, value)
    runs.check()
    return runs


def test_empty_map_has_equal_start_and_end() -> None:
    runs = runs_of(start=7)
    assert (runs.start, runs.end, len(runs), list(runs)) == (7, 7, 0, [])
    assert list(runs.between(0, 100)) == []


def test_appended_equal_value_makes_the_last_run_longer() -> None:
    runs = runs_of((5, "a"), (8, "a"), (9, "b"))
    assert list(runs) == [Run(0, 8, "a"), Run(8, 9, "b")]


def test_appending_nothing_changes_nothing() -> None:
    runs = runs_of((5, "a"), (5, "b"))
    assert list(runs) == [Run(0, 5, "a")]


def test_map_cannot_shrink() -> None:
    with pytest.raises(AssertionError, match="the map ends at 5 and cannot end at 4"):
        runs_of((5, "a"), (4, "b"))


def test_between_clips_the_outer_runs() -> None:
    runs = runs_of((5, "a"), (8, "b"), (20, "c"))
    assert list(runs.between(3, 10)) == [Run(3, 5, "a"), Run(5, 8, "b"), Run(8, 10, "c")]
    assert list(runs.between(-5, 2)) == [Run(0, 2, "a")]
    assert list(runs.between(19, 99)) == [Run(19, 20, "c")]
    assert list(runs.between(6, 6)) == []


def test_at_answers_the_whole_run() -> None:
    runs = runs_of((5, "a"), (8, "b"))
    assert runs.at(0) == runs.at(4) == Run(0, 5, "a")
    assert runs.at(5) == runs.at(7) == Run(5, 8, "b")


@pytest.mark.parametrize("offset", [-1, 8])
def test_at_refuses_an_offset_without_a_value(offset: int) -> None:
    with pytest.raises(AssertionError, match=r"outside \[0, 8\)"):
        runs_of((5, "a"), (8, "b")).at(offset)


@pytest.mark.parametrize(
    ("first", "end", "value", "expected"),
    [
        (3, 5, "x", [Run(0, 3, "a"), Run(3, 5, "x"), Run(5, 10, "a"), Run(10, 20, "b")]),
        (0, 10, "x", [Run(0, 10, "x"), Run(10, 20, "b")]),
        (0, 10, "b", [Run(0, 20, "b")]),
        (10, 20, "a", [Run(0, 20, "a")]),
        (10, 15, "a", [Run(0, 15, "a"), Run(15, 20, "b")]),
        (5, 15, "x", [Run(0, 5, "a"), Run(5, 15, "x"), Run(15, 20, "b")]),
        (5, 15, "a", [Run(0, 15, "a"), Run(15, 20, "b")]),
        (5, 15, "b", [Run(0, 5, "a"), Run(5, 20, "b")]),
        (2, 4, "a", [Run(0, 10, "a"), Run(10, 20, "b")]),
        (0, 20, "x", [Run(0, 20, "x")]),
        (19, 20, "x", [Run(0, 10, "a"), Run(10, 19, "b"), Run(19, 20, "x")]),
    ],
)
def test_overlay_joins_equal_neighbours(
    first: int, end: int, value: str, expected: list[Run[str]]
) -> None:
    runs = runs_of((10, "a"), (20, "b"))
    runs.overlay([Run(first, end, value)])
    runs.check()
    assert list(runs) == expected


def test_overlay_takes_runs_with_and_without_holes_between_them() -> None:
    runs = runs_of((10, "a"), (20, "b"))
    runs.overlay([Run(1, 2, "x"), Run(2, 3, "y"), Run(3, 4, "y"), Run(12, 13, "x")])
    runs.check()
    assert list(runs) == [
        Run(0, 1, "a"),
        Run(1, 2, "x"),
        Run(2, 4, "y"),
        Run(4, 10, "a"),
        Run(10, 12, "b"),
        Run(12, 13, "x"),
        Run(13, 20, "b"),
    ]


def test_overlay_of_nothing_changes_nothing() -> None:
    runs = runs_of((10, "a"))
    runs.overlay([])
    assert list(runs) == [Run(0, 10, "a")]


@pytest.mark.parametrize("count", [SPLICES_MAX, SPLICES_MAX + 1])
def test_many_separate_changes_give_the_same_as_few(count: int) -> None:
    runs = runs_of((4 * count, "a"))
    runs.overlay([Run(4 * index + 1, 4 * index + 2, "x") for index in range(count)])
    runs.check()
    assert len(runs) == 2 * count + 1
    assert [run.first for run in runs if run.value == "x"] == list(range(1, 4 * count, 4))


@pytest.mark.parametrize(("first", "end"), [(-1, 3), (8, 11), (4, 4)])
def test_overlay_refuses_offsets_outside_the_map(first: int, end: int) -> None:
    with pytest.raises(AssertionError, match=r"not within \[0, 10\)"):
        runs_of((10, "a")).overlay([Run(first, end, "x")])


def test_update_changes_each_run_of_the_range_once() -> None:
    runs = runs_of((5, "a"), (8, "b"), (20, "c"))
    runs.update(3, 10, str.upper)
    assert list(runs) == [
        Run(0, 3, "a"),
        Run(3, 5, "A"),
        Run(5, 8, "B"),
        Run(8, 10, "C"),
        Run(10, 20, "c"),
    ]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (-1, [Run(0, 5, "a"), Run(5, 8, "b")]),
        (0, [Run(0, 5, "a"), Run(5, 8, "b")]),
        (3, [Run(3, 5, "a"), Run(5, 8, "b")]),
        (5, [Run(5, 8, "b")]),
        (8, []),
    ],
)
def test_drop_before_removes_lower_offsets(offset: int, expected: list[Run[str]]) -> None:
    runs = runs_of((5, "a"), (8, "b"))
    runs.drop_before(offset)
    runs.check()
    assert list(runs) == expected
    assert (runs.start, runs.end) == (max(offset, 0), 8)


def test_emptied_map_grows_again_from_its_end() -> None:
    runs = runs_of((5, "a"))
    runs.drop_before(5)
    runs.append(6, "a")
    assert list(runs) == [Run(5, 6, "a")]
