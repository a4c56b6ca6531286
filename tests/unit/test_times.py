"""How long the targets of `make` take is measured by one target and said in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.times import TARGETS, Measured, main, with_rows

ROOT = Path(__file__).resolve().parents[2]
TABLE = """\
| target | time | processor time | processors |
|---|---|---|---|
| `make check` | 15 s | 20 s | 2 |
| `make test` | 9 min 0 s | 20 min 3 s | 2 |
"""
TIME = re.compile(r"\b(\d+|two|three|ten) ?(s|min|minutes?|seconds)\b")
NAMES = "|".join(TARGETS)
GATE = re.compile(rf"make ({NAMES})\b")
RULE = re.compile(rf"({NAMES}): ")


def test_measured_rows_replace_their_former_ones_in_the_order_of_the_targets() -> None:
    page = with_rows(f"before\n\n{TABLE}\nafter\n", {"unit": Measured(62.4, 119.6, 2)})
    assert page == (
        "before\n\n"
        "| target | time | processor time | processors |\n"
        "|---|---|---|---|\n"
        "| `make check` | 15 s | 20 s | 2 |\n"
        "| `make unit` | 1 min 2 s | 2 min 0 s | 2 |\n"
        "| `make test` | 9 min 0 s | 20 min 3 s | 2 |\n"
        "\nafter\n"
    )


def test_unknown_target_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean"]) == 2
    assert "got clean" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["Makefile", "CONTRIBUTING.md", "tests/README.md", "README.md"])
def test_no_other_place_says_how_long_a_target_of_the_gate_takes(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    is_about_it = RULE.match if name == "Makefile" else GATE.search
    said = [line for line in lines if is_about_it(line) and TIME.search(line)]
    rows = [line for line in said if re.match(r"\| `make [\w-]+` \| .* \| \d+ \|$", line)]
    assert [line for line in said if line not in rows] == []
    assert bool(rows) == (name == "CONTRIBUTING.md")
