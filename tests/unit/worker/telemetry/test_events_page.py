"""The table of events in docs/worker-monitoring.md is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

from sharegroup.worker.events import EVENTS

PAGE = Path(__file__).resolve().parents[4] / "docs" / "worker-monitoring.md"


def test_every_event_is_explained_in_the_words_of_the_code() -> None:
    table = PAGE.read_text().partition("| event | |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = re.findall(r"\| `([a-z._]+)` \| (.+) \|", table)
    assert dict(rows) == dict(EVENTS)
