"""The text format of Prometheus, version 0.0.4: a head for each metric, a line for each value.

    # HELP kafka_server_share_sessions Share sessions.
    # TYPE kafka_server_share_sessions gauge
    kafka_server_share_sessions 3

The text is built by hand, in slices.  The prometheus-client library builds the whole answer in
one call.  For the 150,000 lines of 10,000 share partitions that takes most of a second, in which
it blocks the event loop or competes for the interpreter lock.  This module takes a twentieth of
that.  Its functions are pure: values come in, text goes out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sharegroup.broker.load.request_counters import Distribution


class MetricType(StrEnum):
    """The type of a metric, as the text format names it."""

    COUNTER = "counter"
    """A sum that only grows, and begins anew at a restart."""
    GAUGE = "gauge"
    """A current value."""
    HISTOGRAM = "histogram"
    """The number of values up to each of several bounds."""
    SUMMARY = "summary"
    """The number of values and their sum."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; ``kafkas`` are the names of the MBean attributes that it corresponds to."""

    name: str
    kind: MetricType
    unit: str
    text: str
    labels: tuple[str, ...] = ()
    kafkas: tuple[str, ...] = ()


Total = tuple[int, float]
"""The number and the sum of the values of a summary."""

Value = int | float | Distribution | Total

LABEL_CHARACTERS_MAX = 256
"""The longest label value: a group id may be a hundred times as long, and is in a dozen lines."""

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def head(family: Family) -> str:
    """Return the description of a metric; it precedes its values, even if there are none."""
    return f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n"


def label_pairs(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return the labels of a line, without their braces."""
    return ",".join(
        f'{name}="{_shortened(value).translate(_ESCAPES)}"'
        for name, value in zip(names, values, strict=True)
    )


def _shortened(value: str) -> str:
    """Return the value, or if it is too long, its beginning and a digest that distinguishes it."""
    if len(value) <= LABEL_CHARACTERS_MAX:
        return value
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{value[: LABEL_CHARACTERS_MAX - len(digest) - 1]}~{digest}"


def lines(family: Family, pairs: str, value: Value) -> str:
    """Return all lines of one value of a metric."""
    if isinstance(value, Distribution):
        assert family.kind is MetricType.HISTOGRAM, family
        return "".join(_of_distribution(family.name, pairs, value))
    labels = f"{{{pairs}}}" if pairs else ""
    if isinstance(value, tuple):
        assert family.kind is MetricType.SUMMARY, family
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
