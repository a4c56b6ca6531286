"""docs/store.md: its Python runs, and its table is that of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.worker.stores.postgres import DIALECT
from sharegroup.worker.stores.sql_marks import TABLE, Statements
from tests.docs.snippets.page_blocks import ROOT, Block, blocks

PATH = ROOT / "docs" / "store.md"
EXAMPLES = [block for block in blocks(PATH) if block.language == "python"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_runs(example: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example.text, example.name, "exec"), {"__name__": __name__})


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    (block,) = (block for block in blocks(PATH) if block.language == "sql")
    created = [text.replace("IF NOT EXISTS ", "") for text in Statements(TABLE, DIALECT).create]
    assert [line.rstrip(";") for line in block.text.strip().splitlines()] == created
