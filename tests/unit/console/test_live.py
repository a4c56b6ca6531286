"""How often the live parts of a page are made."""

from __future__ import annotations

import pytest

from sharegroup.console.web.live import pause_after


@pytest.mark.parametrize(
    ("seconds", "pause"), [(0.0, 1.0), (0.25, 1.0), (0.5, 2.0), (1.0, 4.0), (15.0, 5.0)]
)
def test_page_that_takes_long_is_made_less_often(seconds: float, pause: float) -> None:
    assert pause_after(seconds) == pause
