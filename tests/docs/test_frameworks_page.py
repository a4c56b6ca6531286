"""docs/frameworks.md names the releases that `make frameworks` tries, and tests that exist."""

from __future__ import annotations

import re

from tests.interop.frameworks.environments import ENVIRONMENTS, FOLDER, ROOT

PAGE = (ROOT / "docs" / "frameworks.md").read_text()


def test_page_has_the_releases_that_are_tried() -> None:
    tried = {name: v for environment in ENVIRONMENTS for name, v in environment.versions.items()}
    rows = dict(re.findall(r"^\| ([a-z-]+) \| ([0-9.]+) \|", PAGE, re.MULTILINE))
    assert rows == tried


def test_tests_that_the_page_names_exist_and_are_run() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", PAGE))
    assert named == {name for environment in ENVIRONMENTS for name in environment.tests}
    assert {name for name in named if not (FOLDER / name).exists()} == set()
    assert {path.name for path in FOLDER.glob("test_*.py")} == named
