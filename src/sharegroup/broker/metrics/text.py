"""The text format of Prometheus, version 0.0.4: a head for each metric, a line for each value.

    # HELP kafka_server_share_sessions Share sessions.
    # TYPE kafka_server_share_sessions gauge
    kafka_server_share_sessions 3

Written by hand, in slices: the prometheus-client library builds the whole answer in one call,
which for the 150,000 lines of 10,000 share partitions takes most of a second in which nobody
else is served, or the interpreter is fought for; these strings take a twentieth of that.
Pure: values come in, text goes out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from sharegroup.broker.distribution import Distribution
from sharegroup.broker.metrics.families import Family, Kind

Total = tuple[int, float]
"""Number and sum of the values of a summary."""

Value = int | float | Distribution | Total

LABEL_CHARACTERS_MAX = 256
"""A group's id may be a hundred times as long, and stands in a dozen lines."""

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def head(family: Family) -> str:
    """What a metric is; stands before its values, and also where there are none yet."""
    return f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n"


def label_pairs(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """The labels of a line, without their braces."""
    return ",".join(
        f'{name}="{_shortened(value).translate(_ESCAPES)}"'
        for name, value in zip(names, values, strict=True)
    )


def _shortened(value: str) -> str:
    """The value if it is not too long, else its beginning and what tells it from others."""
    if len(value) <= LABEL_CHARACTERS_MAX:
        return value
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{value[: LABEL_CHARACTERS_MAX - len(digest) - 1]}~{digest}"


def lines(family: Family, pairs: str, value: Value) -> str:
    """All lines of one value of a metric."""
    if isinstance(value, Distribution):
        assert family.kind is Kind.HISTOGRAM, family
        return "".join(_of_distribution(family.name, pairs, value))
    labels = f"{{{pairs}}}" if pairs else ""
    if isinstance(value, tuple):
        assert family.kind is Kind.SUMMARY, family
        count, total = value
        return f"{family.name}_count{labels} {count}\n{family.name}_sum{labels} {total}\n"
    return f"{family.name}{labels} {value}\n"


def _of_distribution(name: str, pairs: str, value: Distribution) -> Iterator[str]:
    before = f"{pairs}," if pairs else ""
    labels = f"{{{pairs}}}" if pairs else ""
    for bound, count in value.cumulative():
        yield f'{name}_bucket{{{before}le="{bound}"}} {count}\n'
    yield f'{name}_bucket{{{before}le="+Inf"}} {value.count}\n'
    yield f"{name}_count{labels} {value.count}\n{name}_sum{labels} {value.total}\n"
