"""The part of ``docs/benchmarks.md`` that says how we compare, from ``docs/benchmarks.json``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

HEAD = """\
## Side by side

`make bench-peers` writes this part and [benchmarks.json](benchmarks.json); don't edit.
`ARGS=--full` measures every workload, `ARGS=--only=P18,P19` these alone; the others stay as they
were, and each says [below](#what-it-was-measured-on) on which day and commit it was measured. The
same unmodified client ran against our `sharegroup serve` and against the peer, in one run, one
broker awake at a time, in turn, pair after pair. Where a virtual machine has to warm up, uncounted
measurements came first. `ours` and `peer` are medians; the ratio is the geometric mean of the
pairs' ratios, **above 1 is better for us** whatever the unit, with Student's 95 % interval of the
mean of their logarithms; of fewer than three pairs, the least and the largest (in italics).
Bold: what was to be reached is; ✗: it is not. A dash says that there was nothing to compare with.
Absolute figures hold for this machine alone.

![Every measured ratio, by workload and peer](benchmarks.svg)
"""
COMPARED = ("", "what", "unit", "ours", "", "peer", "", "ratio", "interval", "to reach", "pairs")
COSTS = (
    "",
    "what",
    "whose",
    "broker CPU s",
    "client CPU s",
    "peak PSS MiB",
    "syncs",
    "spread (max : min)",
)
MEASURED = ("", "what", "pairs", "took", "commit", "day", "machine")
NONE = "-"


def report(results: Mapping[str, Any]) -> str:
    """The whole part."""
    compared = (
        _compared(name, said) for name, result in results.items() for said in result["comparisons"]
    )
    cost = (_cost(name, said) for name, result in results.items() for said in result["costs"])
    parts = [HEAD, *table(COMPARED, compared)]
    parts += ["", "### What it cost", "", *table(COSTS, cost)]
    parts += ["", "### What it was measured on", "", *table(MEASURED, _measured(results))]
    parts += ["", *_machines(results), "", *_durabilities(results), "", *_notes(results)]
    return "\n".join(parts)


def _compared(name: str, said: Mapping[str, Any]) -> list[str]:
    if said["ratio"] is None:
        ratio, interval = NONE, NONE
    else:
        shown = f"{said['ratio']:.2f}"
        ratio = {None: shown, True: f"**{shown}**", False: f"{shown} ✗"}[said["reached"]]
        low, high = said["interval"]
        interval = f"{low:.2f} to {high:.2f}"
        interval = interval if said["kind"] == "95 %" else f"*{interval}*"
    if said["behind_max"] is not None:
        wanted = f"at most {said['behind_max']:g} {said['unit']} behind"
    else:
        wanted = NONE if said["reach"] is None else f"≥ {said['reach']:.2g}"
    return [
        *(name, said["what"], said["unit"], said["ours_is"], figure(said["ours"])),
        *(said["peer_is"], figure(said["peer"]), ratio, interval, wanted),
        str(len(said["pairs"])),
    ]


def _cost(name: str, said: Mapping[str, Any]) -> list[str]:
    fields = ("broker_cpu_s", "client_cpu_s", "peak_pss_mib", "syncs")
    spread = NONE if said["spread"] is None else f"{said['spread']:.2f}"
    return [
        *(name, said["what"], said["peer"]),
        *(figure(said[field]) for field in fields),
        spread,
    ]


def _measured(results: Mapping[str, Any]) -> Iterator[list[str]]:
    machines = _numbered(results)
    for name, result in results.items():
        about = (result["commit"], result["date"], str(machines.index(result["machine"]) + 1))
        yield [name, result["title"], str(result["rounds"]), f"{result['seconds']} s", *about]


def _machines(results: Mapping[str, Any]) -> Iterator[str]:
    for number, machine in enumerate(_numbered(results), 1):
        yield f"Machine {number}: " + "; ".join(
            f"{name} {value}" for name, value in machine.items()
        )


def _numbered(results: Mapping[str, Any]) -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = []
    for result in results.values():
        if result["machine"] not in found:
            found.append(result["machine"])
    return found


def _durabilities(results: Mapping[str, Any]) -> Iterator[str]:
    known = {
        name: said for result in results.values() for name, said in result["durability"].items()
    }
    return (f"- {name}: {said}" for name, said in known.items())


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    """What the logs were like, and what a measurement says beside its value."""
    notes = [
        note for result in results.values() for text in result["notes"] for note in text.split("; ")
    ]
    for result in results.values():
        notes += [
            f"{said['what']}, {said['peer']}: {said['note']}"
            for said in result["costs"]
            if said["note"]
        ]
    return (f"- {note}" for note in dict.fromkeys(notes))


def figure(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    for cells in (names, ["---"] * len(names), *rows):
        yield "| " + " | ".join(cells) + " |"
