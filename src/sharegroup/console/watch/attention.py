"""What needs attention first: a decision from the view and the history alone.

    problem                           severity
    a broker that does not answer     critical
    a partition without a leader      critical
    members 0 and records waiting     critical
    the oldest record waits > 1 h     warning
    lag grows                         warning
    dead letters in the last hour     warning
    something could not be read       notice

Each names what to do, and the metric and alert that watch it all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from sharegroup.console.watch.cluster_view import ClusterView, GroupView
from sharegroup.console.watch.history import Histories

OLD_MS = 60 * 60 * 1000
"""The age of the oldest unsettled record from which it needs attention."""
GROWTH_MIN = 100
"""Records by which lag must have grown in five minutes."""
SHOWN_MAX = 50
"""Problems that the page shows; the rest is a number."""


class Severity(IntEnum):
    """How soon somebody has to look."""

    CRITICAL = 0
    WARNING = 1
    NOTICE = 2


@dataclass(frozen=True, slots=True)
class Attention:
    """A problem, and what to do about it."""

    severity: Severity
    subject: str
    """What it is about: a group, topic or broker."""
    problem: str
    action: str
    page: str
    """The path of the page that shows it."""
    query: tuple[tuple[str, str], ...] = ()
    metric: str | None = None
    """The Prometheus metric that watches it."""


def attention(view: ClusterView, history: Histories, *, now_ms: int) -> list[Attention]:
    """Return what needs attention, the most severe first."""
    found = [*_cluster(view), *_letters(view)]
    for group in view.share_groups:
        found += _group(group, history, now_ms)
    return sorted(found, key=lambda problem: (problem.severity, problem.subject))


def counted(count: int, noun: str) -> str:
    """Return the number with its noun, in the plural unless it is 1."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _cluster(view: ClusterView) -> Iterator[Attention]:
    for broker in view.brokers:
        if broker.error or broker.is_fenced:
            yield Attention(
                Severity.CRITICAL,
                f"broker {broker.node_id}",
                f"{broker.address} does not answer: {broker.error or 'it is fenced'}",
                "look at its process and its log",
                "/brokers",
            )
    for topic in view.topics.values():
        if topic.leaderless:
            numbers = ", ".join(map(str, topic.leaderless[:10]))
            yield Attention(
                Severity.CRITICAL,
                f"topic {topic.name}",
                f"no leader of partition {numbers}: nobody can read or write it",
                "start the brokers that have its replicas",
                "/topic",
                (("name", topic.name),),
            )
    for subject, error in view.problems.items():
        yield Attention(
            Severity.NOTICE,
            subject,
            f"could not be read: {error}",
            "what is shown of it is older, or missing",
            "/brokers",
        )


def _letters(view: ClusterView) -> Iterator[Attention]:
    for topic in view.letters.values():
        if topic.recent_letters:
            letters = counted(topic.recent_letters, "dead letter")
            yield Attention(
                Severity.WARNING,
                f"topic {topic.name}",
                f"{letters} in the last hour",
                "look at their reasons; send them back when the cause is mended",
                "/letters",
                (("topic", topic.name),),
                "sharegroup_worker_dead_lettered_total",
            )


def _group(group: GroupView, history: Histories, now_ms: int) -> Iterator[Attention]:
    link = (("id", group.group_id),)
    subject = f"group {group.group_id}"
    lag = group.lag or 0
    if group.error:
        yield Attention(
            Severity.NOTICE,
            subject,
            f"could not be described: {group.error}",
            "what is shown of it is older, or missing",
            "/group",
            link,
        )
    if group.has_no_members and lag:
        records = "1 record waits" if lag == 1 else f"{counted(lag, 'record')} wait"
        yield Attention(
            Severity.CRITICAL,
            subject,
            f"{records} and it has no members",
            "start its workers",
            "/group",
            link,
            "sharegroup_share_partition_lag",
        )
    elif (growth := history.of(group.group_id).growth() or 0) >= GROWTH_MIN and lag:
        yield Attention(
            Severity.WARNING,
            subject,
            f"lag grew by {growth:,} in five minutes, to {lag:,}",
            "add workers, or look for a handler that became slow",
            "/group",
            link,
            "sharegroup_share_partition_lag",
        )
    if group.oldest_ms is not None and lag and now_ms - group.oldest_ms > OLD_MS:
        hours = (now_ms - group.oldest_ms) / OLD_MS
        yield Attention(
            Severity.WARNING,
            subject,
            f"its oldest unsettled record is {hours:,.1f} h old",
            "look at its delivery count and who holds it",
            "/group",
            link,
        )
