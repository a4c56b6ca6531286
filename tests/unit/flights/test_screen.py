"""Progress where there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from examples.flights.screen import screen


def test_lines_report_each_figure_once_until_it_changes() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80)
    with screen(console, 2_000, "produced", "settled", line_seconds=0.0) as view:
        for reached in ((0, 0), (1_500, 10), (1_500, 10), (2_000, 20)):
            view.progress(*reached)
        view.event("something was killed")
    assert text.getvalue().splitlines() == [
        "produced 1,500 and settled 10 of 2,000",
        "produced 2,000 and settled 20 of 2,000",
        "something was killed",
    ]


def test_terminal_shows_a_bar_for_each_figure() -> None:
    text = io.StringIO()
    with screen(Console(file=text, width=80, force_terminal=True), 2_000, "written") as view:
        view.progress(1_000)
    assert "written" in text.getvalue()
    assert "1000/2000" in text.getvalue()
