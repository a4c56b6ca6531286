"""What one user sees of the console's snapshots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharegroup.client.records import TopicPartition
from sharegroup.console.access.roles import Grant, Rights, Visible
from sharegroup.console.access.sight import HIDDEN_PROBLEM, SeenHistory, Sight
from sharegroup.console.watch.cluster_view import (
    ClusterView,
    GroupPartition,
    GroupView,
    MemberView,
    TopicView,
)
from sharegroup.console.watch.history import History
from sharegroup.dead_letters.letter_topics import LetterTopic

ORDERS, SECRETS = TopicPartition("orders", 0), TopicPartition("secrets", 0)


def group(name: str, *places: TopicPartition) -> GroupView:
    return GroupView(
        name,
        "share",
        "Stable",
        members=(MemberView("m", "c", "h", places),),
        partitions=tuple(GroupPartition(where, 5, 10) for where in places),
        oldest_ms=1,
    )


VIEW = ClusterView(
    topics={name: TopicView(name, 1, is_internal=False) for name in ("orders", "secrets")},
    groups={
        "both": group("both", ORDERS, SECRETS),
        "own": group("own", ORDERS),
        "spies": group("spies", SECRETS),
    },
    letters={
        "orders": LetterTopic("orders", 1, 3, None, ("own", "spies"), 1),
        "secrets": LetterTopic("secrets", 1, 3, None, ("spies",), 1),
    },
    problems={"topics": "topic 'secrets' cannot be read"},
    left_out=3,
)
GRANTED = Rights(grants=(Grant(groups=("own", "both"), topics=("orders",)),))
LISTED = Rights(
    grants=(Grant(),), visible=Visible(frozenset({"own", "both"}), frozenset({"orders"}))
)


@pytest.mark.parametrize("rights", [GRANTED, LISTED], ids=["granted", "listed"])
def test_what_is_hidden_is_named_nowhere(rights: Rights) -> None:
    seen = Sight(rights).of(VIEW)
    assert list(seen.groups) == ["both", "own"]
    assert list(seen.topics) == list(seen.letters) == ["orders"]
    assert seen.letters["orders"].groups == ("own",)
    assert seen.problems == {"topics": HIDDEN_PROBLEM}
    assert seen.left_out == 0
    assert seen.groups["own"] is VIEW.groups["own"]
    both = seen.groups["both"]
    assert (both.topics, both.lag, both.oldest_ms) == (("orders",), 10, None)
    assert "secrets" not in repr(seen)
    assert "spies" not in repr(seen)


def test_who_may_see_everything_sees_the_view_itself() -> None:
    sight = Sight(Rights(grants=(Grant(),)))
    assert sight.of(VIEW) is VIEW
    assert sight.shows_all_of(VIEW.groups["both"])


def test_history_is_of_groups_that_are_seen_completely() -> None:
    history = History()
    for name in VIEW.groups:
        history.add(name, at_ms=1_000, lag=10, progress=5)
    seen = SeenHistory(history, Sight(GRANTED), VIEW)
    counts = {name: len(seen.of(name).since(0)) for name in (*VIEW.groups, "none")}
    assert counts == {"own": 1, "both": 0, "spies": 0, "none": 0}


def test_new_members_of_a_group_are_filtered_too() -> None:
    sight = Sight(GRANTED)
    first = sight.of(VIEW)
    assert sight.of(VIEW) is first
    later = replace(VIEW, groups={"own": group("own", ORDERS, SECRETS), "both": group("both")})
    seen = sight.of(later)
    assert seen.groups["own"].topics == ("orders",)
    assert seen.groups["both"].topics == ()
    assert not sight.shows_all_of(later.groups["own"])
