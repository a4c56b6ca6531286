"""A ratio of pairs, and how sure it is.

Each pair is two neighbours in time, ours and the peer's, and gives one ratio.  What a ratio errs
by is a factor (twice as fast and half as fast are equally far from the truth), so the pairs are
averaged as logarithms: the ratio is the geometric mean.  The interval is Student's: the means of
so few pairs as six scatter more widely than a normal distribution says, and t allows for it.  It
covers the true ratio in 95 runs of 100, if the pairs are alike and err independently; a drift that
is slower than a pair falls out of its ratio.

Two pairs say nothing about their scatter.  Below three, the least and the largest ratio are given,
which is no interval and is not called one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median, stdev

PAIRS_MIN = 3
"""Fewer give no interval."""
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t at 97.5 % for 1 to 30 degrees of freedom; beyond, the last is too careful."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Above 1 is better for us, whatever the unit."""

    ratio: float
    low: float
    high: float
    kind: str
    """``95 %`` or ``spread``."""


def ratio_of(ours: Sequence[float], rivals: Sequence[float], *, higher_is_better: bool) -> Ratio:
    """The ratio of so many pairs, in their order."""
    ratios = pair_ratios(ours, rivals, higher_is_better=higher_is_better)
    logs = [log(ratio) for ratio in ratios]
    mean = fmean(logs)
    if len(logs) < PAIRS_MIN:
        return Ratio(exp(mean), min(ratios), max(ratios), "spread")
    half = T_975[min(len(logs) - 1, len(T_975)) - 1] * stdev(logs) / sqrt(len(logs))
    return Ratio(exp(mean), exp(mean - half), exp(mean + half), "95 %")


def pair_ratios(
    ours: Sequence[float], rivals: Sequence[float], *, higher_is_better: bool
) -> list[float]:
    """One ratio for each pair."""
    if higher_is_better:
        return [mine / theirs for mine, theirs in zip(ours, rivals, strict=True)]
    return [theirs / mine for mine, theirs in zip(ours, rivals, strict=True)]


def most_behind(ours: Sequence[float], rivals: Sequence[float]) -> float:
    """By how much ours is behind in the middle pair, in the line's unit; where less is better."""
    return median(mine - theirs for mine, theirs in zip(ours, rivals, strict=True))
