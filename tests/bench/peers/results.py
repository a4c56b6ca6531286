"""``docs/benchmarks.json``: an object with a key for each workload.

Of each workload: what its weakest comparison says (``ours``, ``peer``, ``ratio``, ``interval``,
``unit``), all ``comparisons`` with their pairs, what each peer's run cost, and what it must be read
with: the machine, the commit, the day.  A run renews the workloads that it measured and leaves
the others as they were, so each says for itself when and where it was measured.

A comparison whose peer was not there has no ``peer``, no ``ratio`` and no ``interval``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.peers.lines import Against, Line, Measured, Workload
from tests.bench.peers.ratios import most_behind, ratio_of

KNOWN_BY = ("ours", "peer", "ratio", "interval", "unit", "what", "ours_is", "peer_is")
Rounds = Mapping[str, Sequence[Sequence[Measured | None]]]
"""By the peer's name: for each line its measurements, round by round."""


def entry(workload: Workload, rounds: Rounds, about: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of one workload."""
    comparisons = [
        comparison(workload, line, against, rounds)
        for line in workload.lines
        for against in line.against
        if against.ours in rounds and _values(_of(workload, rounds, against.ours, line.what))
    ]
    known_by = weakest(comparisons)
    return {
        "title": workload.title,
        **{name: known_by[name] for name in KNOWN_BY},
        **about,
        "comparisons": comparisons,
        "costs": [
            cost
            for index, line in enumerate(workload.lines)
            for peer, lines in rounds.items()
            if (cost := costs(line, peer, lines[index]))
        ],
    }


def comparison(workload: Workload, line: Line, against: Against, rounds: Rounds) -> dict[str, Any]:
    """One line of ours against one line of a rival."""
    ours = _values(_of(workload, rounds, against.ours, line.what))
    theirs = _values(_of(workload, rounds, against.rival, against.line or line.what))
    pairs = list(zip(ours, theirs, strict=False))  # A rival may leave the last rounds out.
    said: dict[str, Any] = {
        "what": line.what,
        "unit": line.unit,
        "ours_is": against.ours,
        # The same broker with another client is told by the line.
        "peer_is": (against.line if against.rival == against.ours else None) or against.rival,
        "ours": median(ours),
        "peer": median(theirs) if theirs else None,
        "ratio": None,
        "interval": None,
        "kind": None,
        "reach": against.reach,
        "behind_max": against.behind_max,
        "reached": None,
        "pairs": [list(pair) for pair in pairs],
    }
    if pairs:
        mine, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        found = ratio_of(mine, theirs, higher_is_better=line.higher_is_better)
        said |= {
            "ratio": found.ratio,
            "interval": [found.low, found.high],
            "kind": found.kind,
            "reached": _reached(against, found.ratio, mine, theirs),
        }
    return said


def weakest(comparisons: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The one that has the smallest part of what it must reach; the first if none must."""
    wanted = [said for said in comparisons if said["ratio"] is not None and said["reach"]]
    return min(
        wanted or comparisons[:1], key=lambda said: (said["ratio"] or 0) / (said["reach"] or 1)
    )


def _reached(
    against: Against, ratio: float, ours: Sequence[float], theirs: Sequence[float]
) -> bool | None:
    """None where nothing is to be reached."""
    if against.behind_max is not None:
        return most_behind(ours, theirs) <= against.behind_max
    return None if against.reach is None else ratio >= against.reach


def costs(line: Line, peer: str, found: Sequence[Measured | None]) -> dict[str, Any] | None:
    """What a peer's runs of a line cost in the middle; None where it has no such line."""
    there = [result for result in found if result is not None]
    if not there:
        return None
    fields = ("value", "broker_cpu_s", "client_cpu_s", "peak_pss_mib", "syncs")
    middle = {}
    for field in fields:
        known = [getattr(result, field) for result in there if getattr(result, field) is not None]
        middle[field] = median(known) if known else None
    least, most = min(result.value for result in there), max(result.value for result in there)
    return {
        "what": line.what,
        "unit": line.unit,
        "peer": peer,
        "rounds": len(there),
        **middle,
        "spread": most / least if least else None,
        "note": there[-1].note,
    }


def _of(workload: Workload, rounds: Rounds, peer: str, what: str) -> Sequence[Measured | None]:
    """A peer's measurements of a line; none where it took no part."""
    names = [line.what for line in workload.lines]
    return rounds[peer][names.index(what)] if peer in rounds else ()


def _values(found: Sequence[Measured | None]) -> list[float]:
    return [result.value for result in found if result is not None]


def renew(path: Path, measured: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """Keep these entries in place of older ones of the same names, and all others as they were."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known |= measured
    kept = {name: known[name] for name in order if name in known}
    path.write_text(json.dumps(kept, indent=1) + "\n")
    return kept
