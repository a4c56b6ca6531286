"""docs/worker.md and what was moved from it: their Python runs, its tables are those of the code.

`make docs-test` also runs its commands, with a broker and a worker in processes of their own.
"""

from __future__ import annotations

import inspect
import re

import pytest

from sharegroup.worker.declarations.options import RouteOptions
from sharegroup.worker.records.record import Record
from tests.docs.snippets.page_blocks import ROOT, Block, blocks
from tests.integration.worker import test_running
from tests.unit.worker import test_outcomes
from tests.unit.worker.decisions import test_decide
from tests.unit.worker.running import test_admission, test_own_topic

PATH = ROOT / "docs" / "worker.md"
PAGE = PATH.read_text()
EXAMPLES = [
    block
    for path in (PATH, ROOT / "docs" / "worker-monitoring.md", ROOT / "docs" / "worker-testing.md")
    for block in blocks(path)
    if block.language == "python" and not {"with", "needs"} & set(block.options)
]
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
MODULES_OF_ROWS = (test_decide, test_outcomes, test_own_topic, test_admission)
ROWS_OF_A_REAL_WORKER = {
    "18": "test_a_crash_of_the_interpreter_fails_its_record_and_no_other",
    "20": "test_stop_finishes_records_in_the_grace_period_and_releases_the_rest",
}
"""Rows that virtual time has no use for, and their tests in `test_running`."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_runs(example: Block) -> None:
    exec(compile(example.text, example.name, "exec"), {"__name__": __name__})


def rows(section: str, sections: list[str] = SECTIONS) -> list[list[str]]:
    (found,) = (section_ for section_ in sections if section_.startswith(section))
    lines = [line for line in found.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_row_of_outcomes_has_a_test() -> None:
    numbers = [row[0] for row in rows("Outcomes of a record") if row[0].isdigit()]
    assert numbers == [str(number) for number in range(1, 29)]
    tests = " ".join(name for module in MODULES_OF_ROWS for name in vars(module))
    untested = {number for number in numbers if f"test_row_{number}_" not in tests}
    assert untested == ROWS_OF_A_REAL_WORKER.keys()
    assert [
        name for name in ROWS_OF_A_REAL_WORKER.values() if not hasattr(test_running, name)
    ] == []


def test_row_numbers_in_the_code_agree_with_the_document() -> None:
    from sharegroup.worker.decisions import decide

    noted = {
        int(n)
        for note in re.findall(r"# ([\d, ]+)\n", inspect.getsource(decide))
        for n in note.split(", ")
    }
    assert noted == {*range(1, 14), 24, 27}


def test_every_public_name_of_a_record_is_on_the_page() -> None:
    public = {name for name in vars(Record) if not name.startswith("_")} - {
        "delivery",
        "story",
        "decision",
        "origin",
        "begun_ms",
    }
    assert {name for name in public if not re.search(rf"`{name}[`(]", PAGE)} == set()


def test_every_option_is_on_the_page() -> None:
    listed = {row[0] for row in rows("Options\n")[1:]}
    assert listed == {f"`{name}`" for name in RouteOptions.__annotations__}
