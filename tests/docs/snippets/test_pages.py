"""README and a tutorial run as a reader follows them; `make docs-test` runs all pages.

Here the environment is that of the tests, and blocks that need Java are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.snippets.page_blocks import ROOT
from tests.docs.snippets.page_run import PageRun

ENVIRONMENT = Path(sys.executable).parent.parent
PAGES = (
    ("README.md", 4),
    ("docs/tutorials/worker.md", 7),
)
"""Pages, and the least number of their blocks that run."""


@pytest.mark.parametrize(("page", "at_least"), PAGES)
def test_page_runs_as_it_is_written(page: str, at_least: int, tmp_path: Path) -> None:
    with PageRun(ROOT / page, tmp_path, ENVIRONMENT) as reader:
        assert len(list(reader.run(without="java"))) >= at_least
