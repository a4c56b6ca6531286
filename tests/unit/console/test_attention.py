"""What needs attention: each problem with its severity, its page and its metric."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from sharegroup.client.records import TopicPartition
from sharegroup.console.watch.attention import Attention, Severity, attention
from sharegroup.console.watch.cluster_view import (
    BrokerView,
    ClusterView,
    GroupPartition,
    GroupView,
    MemberView,
    TopicView,
)
from sharegroup.console.watch.history import History
from sharegroup.console.web.routes import ROUTES
from sharegroup.dead_letters.letter_topics import LetterTopic

NOW = 1_700_000_000_000
HOUR = 3_600_000
METRICS = Path(__file__).parents[3] / "docs" / "metrics.md"
MEMBER = MemberView("m", "c", "/127.0.0.1", ())


def broker(*, is_fenced: bool = False, error: str | None = None) -> BrokerView:
    return BrokerView(1, "kafka:9092", None, is_controller=True, is_fenced=is_fenced, error=error)


def group(lag: int | None, *, members: int = 1, oldest_ms: int | None = None) -> GroupView:
    where = TopicPartition("orders", 0)
    return GroupView(
        "billing",
        "share",
        "stable",
        members=(MEMBER,) * members,
        partitions=(GroupPartition(where, 10, lag),),
        oldest_ms=oldest_ms,
        seen_at=1.0,
        members_at=1.0,
    )


def view(*groups: GroupView) -> ClusterView:
    return ClusterView(brokers=(broker(),), groups={each.group_id: each for each in groups})


def problems(view: ClusterView, history: History | None = None) -> list[Attention]:
    return attention(view, history or History(), now_ms=NOW)


def grown() -> History:
    history = History()
    for second in range(0, 301, 10):
        history.add("billing", at_ms=NOW - 300_000 + second * 1000, lag=second, progress=0)
    return history


EVERYTHING = ClusterView(
    brokers=(broker(is_fenced=True),),
    topics={"orders": TopicView("orders", 3, is_internal=False, leaderless=(2,))},
    groups={
        "billing": group(301, oldest_ms=NOW - 5 * HOUR),
        "idle": replace(group(3, members=0), group_id="idle"),
        "gone": GroupView("gone", "share", "dead", error="not authorized"),
    },
    letters={"orders.dlq": LetterTopic("orders.dlq", 1, 9, NOW, ("billing",), 4)},
    problems={"topics": "no rights"},
)


def test_healthy_cluster_needs_none() -> None:
    assert problems(view(group(12), group(0, members=0))) == []


def test_unknown_is_not_a_problem() -> None:
    assert problems(view(group(None, members=0))) == []


def test_broker_that_does_not_answer_comes_first() -> None:
    seen = ClusterView(brokers=(broker(error="refused"),), problems={"groups": "timed out"})
    first, second = problems(seen)
    assert (first.severity, first.subject) == (Severity.CRITICAL, "broker 1")
    assert first.problem == "kafka:9092 does not answer: refused"
    assert (second.severity, second.subject) == (Severity.NOTICE, "groups")


def test_waiting_records_without_members_are_critical() -> None:
    (single,) = problems(view(group(1, members=0)))
    assert (single.severity, single.problem) == (
        Severity.CRITICAL,
        "1 record waits and it has no members",
    )
    (many,) = problems(view(group(1200, members=0)))
    assert many.problem == "1,200 records wait and it has no members"


def test_members_that_are_not_known_yet_are_not_missing() -> None:
    assert problems(view(replace(group(1, members=0), members_at=None))) == []
    (told,) = problems(view(replace(group(1, members=0), error="not authorized")))
    assert told.problem == "could not be described: not authorized"


def test_lag_that_grows_is_a_warning() -> None:
    (growth,) = problems(view(group(300)), grown())
    assert (growth.severity, growth.problem) == (
        Severity.WARNING,
        "lag grew by 300 in five minutes, to 300",
    )


def test_record_that_waits_for_more_than_an_hour_is_a_warning() -> None:
    (old,) = problems(view(group(1, oldest_ms=NOW - 3 * HOUR)))
    assert old.problem == "its oldest unsettled record is 3.0 h old"
    assert problems(view(group(1, oldest_ms=NOW - HOUR))) == []
    assert problems(view(group(0, oldest_ms=NOW - 3 * HOUR))) == []


def test_most_severe_problems_come_first() -> None:
    found = problems(EVERYTHING, grown())
    assert [problem.severity for problem in found] == sorted(problem.severity for problem in found)
    assert [problem.subject for problem in found] == [
        *("broker 1", "group idle", "topic orders"),
        *("group billing", "group billing", "topic orders.dlq"),
        *("group gone", "topics"),
    ]


def test_each_problem_leads_to_a_page_and_names_a_metric_that_exists() -> None:
    documented = set(re.findall(r"`(sharegroup_\w+)`", METRICS.read_text()))
    paths = {route.path for route in ROUTES}
    for problem in problems(EVERYTHING, grown()):
        assert problem.page in paths
        assert problem.action
        assert problem.metric is None or problem.metric in documented
