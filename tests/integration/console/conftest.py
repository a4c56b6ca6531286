"""The shop with its console, and a browser before it, once for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Watched, browser, missing
from tests.support.console_scene import Scene, shop


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with shop(tmp_path_factory.mktemp("shop"), "--allow-changes") as open_shop:
        yield open_shop


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with browser() as running:
        yield running


@pytest.fixture
def watched(chromium: Any) -> Iterator[Watched]:
    """A page whose errors, dialogs and violations of its policy fail the test."""
    with Watched(chromium) as page:
        yield page
    assert page.offences == []


@pytest.fixture(scope="session")
def axe() -> str:
    source = Path(__file__).parents[3] / "build" / "axe" / "axe.min.js"
    if not source.exists():
        pytest.skip("axe-core is not in build/axe: make console-test")
    return source.read_text()
