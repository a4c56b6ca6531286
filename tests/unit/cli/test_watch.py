"""``--watch``: a listing again and again, on a terminal and elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import click
import pytest

from sharegroup.cli.common.output import Listing
from sharegroup.cli.common.watch import Lines, Screen, view_of, watch
from sharegroup.errors import NetworkException

ANSWER = Listing([{"topic": "orders", "lag": 3}], ("topic", "lag"), "There is nothing.")


class Answers:
    """Gives one answer after the other; then whoever watches presses Ctrl-C."""

    def __init__(self, *answers: Listing | Exception) -> None:
        self._answers: Iterator[Listing | Exception] = iter(answers)

    async def take(self) -> Listing:
        for answer in self._answers:
            if isinstance(answer, Exception):
                raise answer
            return answer
        raise asyncio.CancelledError


def watched(*answers: Listing | Exception) -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch(view_of(0.001, as_json=False), Answers(*answers).take, 0.001))


def test_each_answer_is_a_line_of_json_where_no_terminal_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watched(ANSWER, ANSWER)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["rows"] for line in lines] == [[{"topic": "orders", "lag": 3}]] * 2
    assert all(len(line["at"]) == len("2026-11-21T12:00:01Z") for line in lines)


def test_later_failures_are_shown_and_the_next_answer_is_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watched(ANSWER, NetworkException("gone"), click.ClickException("refused"), ANSWER)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("error") for line in lines] == [
        None,
        "NetworkException: gone",
        "refused",
        None,
    ]


def test_failures_are_reported_together_with_rows(capsys: pytest.CaptureFixture[str]) -> None:
    watched(Listing([{"n": 1}], ("n",), "", [NetworkException("gone")]))
    line = json.loads(capsys.readouterr().out)
    assert (line["rows"], line["error"]) == ([{"n": 1}], "NetworkException: gone")


def test_failure_of_the_first_request_ends_the_watch() -> None:
    with pytest.raises(NetworkException):
        asyncio.run(watch(Lines(), Answers(NetworkException("gone")).take, 1))


def test_line_of_json_is_appended_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    Lines().fail("broken")
    assert json.loads(capsys.readouterr().out)["error"] == "broken"


def test_screen_overwrites_its_previous_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "24")
    screen = Screen(2)
    screen.show(ANSWER)
    first = strip_positions(capsys.readouterr().out)
    screen.fail("NetworkException: gone")
    second = strip_positions(capsys.readouterr().out)
    assert [line.rstrip() for line in first[1:]] == ["", "TOPIC   LAG", "orders  3"]
    assert first[0].startswith("every 2 s, last at ")
    assert second[2:] == ["NetworkException: gone"]


def test_long_listing_is_cut_to_the_height_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "8")
    Screen(1).show(Listing([{"n": n} for n in range(20)], ("n",), ""))
    lines = strip_positions(capsys.readouterr().out)
    assert [line.rstrip() for line in lines[1:]] == ["", "N", "0", "1", "2", "... 17 more lines"]


def test_broker_that_is_away_is_told_in_the_first_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "6")
    screen = Screen(1)
    screen.show(Listing([{"n": n} for n in range(20)], ("n",), ""))
    capsys.readouterr()
    screen.note("waiting for h:1")
    noted = capsys.readouterr()
    title, *others = strip_positions(noted.out)
    assert "; waiting for h:1; Ctrl-C stops" in title
    assert [line.rstrip() for line in others] == ["", "N", "0", "... 19 more lines"]
    assert noted.err == ""
    screen.show(ANSWER)
    assert "waiting" not in capsys.readouterr().out


def test_long_error_is_broken_and_counted_so_that_the_first_line_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "5")
    monkeypatch.setenv("COLUMNS", "40")
    Screen(1).fail("word " * 100)
    lines = strip_positions(capsys.readouterr().out)
    assert lines[0].startswith("every 1 s, last at ")
    assert len(lines) == 4
    assert all(len(line) <= 40 for line in lines)


def strip_positions(picture: str) -> list[str]:
    """The lines of a picture; click has taken what is only for terminals."""
    return picture.splitlines()
