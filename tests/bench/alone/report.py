"""The part "By itself" of ``docs/benchmarks.md``."""

from __future__ import annotations

from typing import Any

HEAD = """\
## By itself

`python -m tests.bench.alone --quotable`: figures of our broker, or of its core, that stand for
themselves.

| what | unit | measured | to reach | rounds | commit, day |
| --- | --- | --- | --- | --- | --- |"""
NONE = "-"


def report(alone: dict[str, Any]) -> str:
    """A row for each figure, in bold where it is reached."""
    rows = [HEAD]
    for result in alone.values():
        for figure in result["figures"]:
            value, least, most = figure["value"], figure["at_least"], figure["at_most"]
            reached = (least is None or value >= least) and (most is None or value <= most)
            wanted = NONE if most is None else f"≤ {most:,g}"
            wanted = wanted if least is None else f"≥ {least:,g}"
            shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            shown = f"**{shown}**" if reached else f"{shown} ✗"
            cells = (figure["what"], figure["unit"], shown, wanted, str(result["rounds"]))
            rows.append(f"| {' | '.join(cells)} | {result['commit']}, {result['date']} |")
    return "\n".join(rows)
