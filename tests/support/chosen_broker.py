"""Our broker or a real Apache Kafka, as a process, behind one face: what clients are tested on.

What our clients promise they promise on both, so their tests are written once.  Those that take
their broker from here by `chosen` run against ours, and with ``SHAREGROUP_INTEROP=kafka`` against
Apache Kafka (``make interop-kafka``).  Those few that are to show both in every run take their
fixture's parameters from `BOTH`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.support.kafka_peer import KafkaPeer, why_missing
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess

OURS, KAFKA = "sharegroup", "kafka"
ON_KAFKA = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=why_missing() or ""),
]
BOTH = [OURS, pytest.param(KAFKA, marks=ON_KAFKA)]
"""Parameters of a fixture that is there for either broker."""

LONG_WITH_A_JVM = pytest.mark.skipif(
    "SHAREGROUP_INTEROP" not in os.environ, reason="make interop and make interop-kafka run it"
)
"""For tests that start a virtual machine and take ten seconds and more; `make test` has no time."""


def sample(cases: Sequence[Any], count: int = 1) -> list[Any]:
    """The parameters of a long test; `make test` runs the first ones, `make interop` all."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if index < count else LONG_WITH_A_JVM,
        )
        for index, case in enumerate(cases)
    ]


BOTH_IN_INTEROP = [OURS, pytest.param(KAFKA, marks=[*ON_KAFKA, LONG_WITH_A_JVM])]
"""Parameters of a fixture that `make test` runs on our broker, `make interop-kafka` on both."""

T = TypeVar("T")

HEARD_SECONDS_MAX = HANGING_SECONDS

SHORT_TIMES = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
}
"""What a group may ask for: short locks make short tests, and both brokers refuse less than a
second."""

KEPT = {"log.retention.ms": "-1"}
"""Tests send records of 1970.  Retention would delete them, in the middle of a test."""

SOONER = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
}
"""Of Kafka alone, which gives a new group its partitions with one of the heartbeats after the
first, and waits for a killed node's session to end before it lets the node in again."""


class RunningBroker(NamedTuple):
    """A broker that answers; ``kill`` ends it as ``kill -9`` does, ``start`` brings it back."""

    bootstrap_servers: str
    data: Path
    kill: Callable[[], None]
    start: Callable[[], None]


def chosen() -> str:
    """Which broker this run of the tests is about."""
    return os.environ.get("SHAREGROUP_INTEROP") or OURS


def when_heard(read: Callable[[], T], is_news: Callable[[T], bool]) -> T:
    """What ``read`` gives after a change that was answered.

    Ours answers when it is to be seen, and is read once.  Apache Kafka's controller answers, and
    its broker hears of it a moment later, so there it is read again for a while.
    """
    found = read()
    limit = time.monotonic() + HEARD_SECONDS_MAX
    while chosen() == KAFKA and not is_news(found) and time.monotonic() < limit:
        found = read()
    return found


@contextmanager
def running(
    name: str, folder: Path, settings: Mapping[str, str] = SHORT_TIMES, *, heap: str = "512m"
) -> Iterator[RunningBroker]:
    """The broker of this name over an empty folder."""
    assert name in (OURS, KAFKA), f"SHAREGROUP_INTEROP is {OURS} or {KAFKA}, not {name!r}"
    settings = {**KEPT, **settings}
    if name == KAFKA:
        with KafkaPeer(folder, {**SOONER, **settings}, heap=heap) as kafka:
            yield RunningBroker(kafka.bootstrap_servers, folder / "data", kafka.kill, kafka.start)
    else:
        with ServeProcess(folder / "data", settings=settings) as ours:
            yield RunningBroker(ours.bootstrap_servers, ours.data, ours.kill9, ours.start)
