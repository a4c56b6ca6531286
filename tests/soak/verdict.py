"""Judges a soak by its windows, its account and the broker's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

MEDIAN_SHARE_MIN = 0.5
WINDOW_SHARE_MIN = 0.2
WINDOW_SECONDS_MIN = 5.0
"""A shorter window, at the end of a phase, is not judged."""
GROWTH_MAX = 1.15
GROWTH_SLACK_MIB = 50
PROBE_SECONDS_MAX = 1.0

Window = Mapping[str, float]


@dataclass
class Verdict:
    """The figures of a soak and the problems: none means that it held."""

    problems: list[str] = field(default_factory=list)
    reference: float = 0.0
    """Records consumed a second while nobody attacked."""
    median_share: float = 0.0
    lowest_share: float = 0.0
    memory_halves_mib: tuple[float, float] = (0.0, 0.0)


def judge(
    undisturbed: Sequence[Window],
    attacked: Sequence[Window],
    *,
    account: Mapping[str, Mapping[str, int]],
    memory_mib: Sequence[float],
    memory_limit_mib: float,
    probe_slowest: float,
    log: str,
) -> Verdict:
    """The verdict; ``memory_mib`` are samples of the attacked phase in equal intervals."""
    verdict = Verdict()
    _judge_throughput(verdict, undisturbed, attacked)
    for name, counts in account.items():
        for what in ("lost", "doubles_unexplained"):
            if counts[what]:
                verdict.problems.append(f"{name}: {counts[what]} records {what}")
    half = len(memory_mib) // 2
    if half:
        first, second = median(memory_mib[:half]), median(memory_mib[half:])
        verdict.memory_halves_mib = first, second
        if second > first * GROWTH_MAX + GROWTH_SLACK_MIB:
            verdict.problems.append(f"memory grew from {first:.0f} to {second:.0f} MiB")
        if max(memory_mib) > memory_limit_mib:
            verdict.problems.append(
                f"memory {max(memory_mib):.0f} MiB, limit {memory_limit_mib:.0f} MiB"
            )
    if probe_slowest > PROBE_SECONDS_MAX:
        verdict.problems.append(f"the probe waited {probe_slowest:.2f} s, 1 is the limit")
    if "Traceback" in log:
        verdict.problems.append("a traceback in the broker's log")
    return verdict


def _judge_throughput(
    verdict: Verdict, undisturbed: Sequence[Window], attacked: Sequence[Window]
) -> None:
    before, during = _rates(undisturbed), _rates(attacked)
    if not before or not during:
        verdict.problems.append("too few windows to judge")
        return
    verdict.reference = median(before)
    verdict.median_share = median(during) / verdict.reference
    verdict.lowest_share = min(during) / verdict.reference
    if verdict.median_share < MEDIAN_SHARE_MIN:
        verdict.problems.append(
            f"the median window has {verdict.median_share:.2f} of the undisturbed throughput, "
            f"{MEDIAN_SHARE_MIN} is the least"
        )
    if verdict.lowest_share < WINDOW_SHARE_MIN:
        verdict.problems.append(
            f"the lowest window has {verdict.lowest_share:.2f} of the undisturbed throughput, "
            f"{WINDOW_SHARE_MIN} is the least"
        )


def _rates(windows: Sequence[Window]) -> list[float]:
    """Records consumed a second, by share group and plain fetch together."""
    return [
        (window["accepted"] + window["fetched"]) / window["seconds"]
        for window in windows
        if window["seconds"] >= WINDOW_SECONDS_MIN
    ]


def as_text(verdict: Verdict, report: Mapping[str, Any]) -> str:
    """The report for people."""
    first, second = verdict.memory_halves_mib
    peak, idle = report["peak_mib"], report["idle_mib"]
    lines = [
        "held" if not verdict.problems else "BROKEN",
        *(f"  {problem}" for problem in verdict.problems),
        f"undisturbed: {verdict.reference:,.0f} records a second, median of windows",
        f"attacked: median {verdict.median_share:.2f}, lowest {verdict.lowest_share:.2f} of that",
        f"memory in MiB: medians {first:.0f}, then {second:.0f}; peak {peak}, idle {idle}",
        f"probe: max {report['probe_max']:.3f} s, p99 {report['probe_p99']:.3f} s",
        *(f"account {name}: {dict(counts)}" for name, counts in report["account"].items()),
        f"errors that honest clients met: {report['errors'] or 'none'}",
        *(
            f"attacker {row['name']}: {row['rounds']} rounds, thrown out of {row['thrown_out']}"
            for row in report["attackers"]
        ),
    ]
    return "\n".join(lines) + "\n"
