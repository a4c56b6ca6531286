"""docs/worker-results.md: its Python runs."""

from __future__ import annotations

import pytest

from tests.docs.snippets.page_blocks import ROOT, Block, blocks

EXAMPLES = [
    block for block in blocks(ROOT / "docs" / "worker-results.md") if block.language == "python"
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_runs(example: Block) -> None:
    # As a module of its own: annotations are looked up in it.
    exec(compile(example.text, example.name, "exec"), {"__name__": "__main__"})
