"""The script that measures the state topic works, and what it promises holds at a small scale."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.bench.share_state import measure


@pytest.mark.slow
def test_state_topic_takes_no_more_than_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """20,000 acknowledgements: 2.8 MiB are written, and two snapshots' worth is left."""
    asyncio.run(measure(str(tmp_path), 20_000, 20))
    printed = capsys.readouterr().out
    written, left = map(float, re.findall(r"state topic +([\d.]+) MiB", printed))
    [allowed] = map(float, re.findall(r"allowed +([\d.]+) MiB", printed))
    assert written > 2.5
    assert left <= allowed / 10
    assert "before the prune, read in" in printed
