"""`docs/spec.md` stays true: every number has its test at the wire, and every such test its number.

The tests that a row names beside that exist, so do the modules, and every module of ``core``
decides something that is promised.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sharegroup"
TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "spec.md").read_text()

ROW = re.compile(
    r"^\| (?P<section>[a-z]+)-(?P<number>\d+) \| (?P<text>[^|]+?) \| (?P<source>[^|]+?) \| "
    r"`(?P<module>[^|]+?)` \| (?:`(?P<also>[^|]+?)` )?\|$",
    re.MULTILINE,
)
SPEC_TEST = re.compile(r"^def test_(?P<section>[a-z]+)_(?P<number>\d+)_\w+\(", re.MULTILINE)

ELSEWHERE = "proof"
"""The section whose statements no request can show; their tests are the ones named beside."""

UNPROMISED: dict[str, str] = {
    "core/sessions/user_part.py": "limits, which docs/limits.md and core/shared_totals.py have",
    "core/groups/modern/heartbeat.py": "it changes when work is done, not its result",
    "core/security/login.py": "logins are promised in docs/security.md",
    "core/security/certificate_names.py": "mutual TLS is promised in docs/security.md",
    "core/security/principal.py": "names and addresses; what they may do is in docs/security.md",
    "core/security/principal_rules.py": "mutual TLS is promised in docs/security.md",
    "core/security/scram.py": "logins are promised in docs/security.md",
}
"""Modules of ``core`` that nobody sees from outside, and why."""


class Row(NamedTuple):
    section: str
    number: int
    module: str
    also: str | None

    @property
    def name(self) -> str:
        return f"{self.section}-{self.number}"


ROWS = [
    Row(match["section"], int(match["number"]), match["module"], match["also"])
    for match in ROW.finditer(PAGE)
]


def test_every_row_of_the_tables_is_a_statement() -> None:
    """A row that the pattern misses would be held by nothing."""
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [a-z]+-\d+ ", line)]
    assert len(rows) == len(ROWS) > 250


def test_statement_numbers_are_consecutive_within_their_sections() -> None:
    section, expected = "", 0
    for line in PAGE.splitlines():
        if line.startswith("## "):
            section, expected = line.removeprefix("## "), 0
        if match := ROW.match(line):
            expected += 1
            assert (match["section"], int(match["number"])) == (section, expected), line


def test_every_number_has_one_test_at_the_wire_and_every_such_test_a_number() -> None:
    tests = Counter(
        f"{match['section']}-{match['number']}"
        for file in sorted((TESTS / "spec").glob("test_*.py"))
        for match in SPEC_TEST.finditer(file.read_text())
        if file.stem == f"test_{match['section']}"
    )
    assert tests == Counter(row.name for row in ROWS if row.section != ELSEWHERE)
    assert [row.name for row in ROWS if row.section == ELSEWHERE and row.also is None] == []


def test_every_test_at_the_wire_is_numbered() -> None:
    """In the file of its section: `pytest tests/spec -k fetch_8_` finds a number's test."""
    stray = [
        f"{file.name}: {name}"
        for file in sorted((TESTS / "spec").glob("test_*.py"))
        for name in re.findall(r"^\s*def (test_\w+)\(", file.read_text(), re.MULTILINE)
        if not re.match(rf"{file.stem}_\d+_", name)
    ]
    assert stray == []


def test_modules_exist() -> None:
    missing = [row.name for row in ROWS if not (SOURCE / row.module).is_file()]
    assert missing == []


def test_tests_that_are_named_beside_exist() -> None:
    missing = []
    for row in ROWS:
        if row.also is None:
            continue
        path, _, name = row.also.partition("::")
        file = TESTS / path
        if not file.is_file() or not re.search(rf"def {name}\(", file.read_text()):
            missing.append(f"{row.name}: {row.also}")
    assert missing == []


def test_every_module_of_core_keeps_a_promise() -> None:
    promised = {row.module for row in ROWS}
    paths = (SOURCE / "core").rglob("[a-z]*.py")
    modules = {str(path.relative_to(SOURCE)) for path in paths}
    assert len(modules) >= 30
    assert modules - promised - UNPROMISED.keys() == set()
