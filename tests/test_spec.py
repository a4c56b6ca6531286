"""`docs/spec.md` stays true: numbers are unique, modules and tests exist, core is covered."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "sharegroup"
ROW = re.compile(
    r"^\| (?P<id>[A-Z]\d+) \| (?P<text>.+?) \| (?P<source>.+?) \| `(?P<module>.+?)` \| "
    r"`(?P<test>.+?)` \|$",
    re.MULTILINE,
)
ROWS = [match.groupdict() for match in ROW.finditer((ROOT / "docs" / "spec.md").read_text())]


def test_every_row_of_the_tables_is_a_statement() -> None:
    lines = (ROOT / "docs" / "spec.md").read_text().splitlines()
    rows = [line for line in lines if re.match(r"\| [A-Z]\d+ ", line)]
    assert len(rows) == len(ROWS) > 40


def test_numbers_are_unique_and_without_gaps() -> None:
    by_letter: dict[str, list[int]] = {}
    for row in ROWS:
        by_letter.setdefault(row["id"][0], []).append(int(row["id"][1:]))
    for letter, numbers in by_letter.items():
        assert numbers == list(range(1, len(numbers) + 1)), letter


def test_modules_exist() -> None:
    missing = [row["id"] for row in ROWS if not (SOURCE / row["module"]).is_file()]
    assert missing == []


def test_tests_exist() -> None:
    missing = []
    for row in ROWS:
        path, _, name = row["test"].partition("::")
        file = ROOT / "tests" / path
        if not file.is_file() or not re.search(rf"def {name}\(", file.read_text()):
            missing.append(f"{row['id']}: {row['test']}")
    assert missing == []


def test_every_module_of_core_keeps_a_promise() -> None:
    promised = {row["module"] for row in ROWS}
    modules = {f"core/{path.name}" for path in (SOURCE / "core").glob("[a-z]*.py")}
    assert modules - promised == set()
