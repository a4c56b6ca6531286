"""When a member of a share group counts as idle, and what the log says of it, once."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sharegroup.client.share.member.idleness import Idleness
from sharegroup.client.share.member.membership import Membership
from sharegroup.errors import CoordinatorNotAvailable, NotLeaderOrFollower
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition

KEY = TopicIdPartition(TopicId(UUID(int=7)), 0)


class Watched:
    """A member with a watch; ``wants`` is whether its application waits for records."""

    def __init__(self, *assigned: TopicIdPartition) -> None:
        self.wants = True
        self.membership = Membership(GroupId("g"), MemberId("m"), None)
        self.membership.subscribe(("t",))
        self.membership.assignment = frozenset(assigned)
        self.membership._epoch = 3
        self.heartbeats = SimpleNamespace(last_error=None)
        self.metadata_problem: str | None = None
        cluster: Any = SimpleNamespace(known_coordinator=lambda group_id: 2)
        self.idleness = Idleness(
            cluster,
            self.membership,
            self.heartbeats,  # type: ignore[arg-type]
            SimpleNamespace(  # type: ignore[arg-type]
                leaderless_count=lambda: 0, metadata_problem=lambda now: self.metadata_problem
            ),
            wants=lambda: self.wants,
        )

    def look(self, *moments: float) -> None:
        for now in moments:
            self.idleness.look(now)

    def says_all(self) -> bool:
        """Whether the next heartbeat makes the coordinator repeat the assignment."""
        return self.membership.request().subscribed_topic_names is not None


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="sharegroup.client.share.member.idleness")


def test_idle_member_is_logged_once_and_again_when_it_resumes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched(KEY)
    watched.idleness.failed(1, NotLeaderOrFollower("moved"))
    watched.heartbeats.last_error = CoordinatorNotAvailable("away")
    watched.look(100, 114)
    assert (caplog.messages, watched.idleness.period) == ([], None)
    watched.look(115, 116, 200)
    (told,) = caplog.messages
    assert told == (
        "event=member.idle group=g member=m idle_seconds=15 topics=t coordinator=2 epoch=3 "
        "assigned=1 without_leader=0 errors=[node 1: NotLeaderOrFollower('moved'); coordinator: "
        "CoordinatorNotAvailable('away')] action='no fetch succeeded: check the errors and the "
        "leaders of the partitions'"
    )
    assert watched.idleness.seconds == 100
    period = watched.idleness.period
    assert period is not None
    assert (period.seconds, told.endswith(period.knowledge)) == (100, True)
    watched.idleness.fetched(1)
    watched.look(201)
    assert watched.idleness.period is None
    assert caplog.messages[1:] == ["event=member.resumed group=g member=m idle_seconds=100"]
    assert watched.idleness.seconds == 0


def test_idle_member_names_the_problem_with_its_metadata(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(KEY)
    watched.metadata_problem = "no response for 14 s"
    watched.look(100, 115)
    assert "errors=[metadata: no response for 14 s]" in caplog.text


def test_member_that_fetches_is_not_idle(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(KEY)
    for now in range(0, 60, 10):
        watched.idleness.fetched(1)
        watched.look(now)
    assert caplog.messages == []


def test_application_that_does_not_wait_is_not_idle(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(KEY)
    watched.look(0, 10)
    watched.wants = False
    watched.look(12)
    watched.wants = True
    watched.look(14, 28)  # Counted from the moment when it waits again.
    assert caplog.messages == []


def test_brokers_may_hold_back_an_answer_for_longer(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(KEY)
    watched.idleness.wait_seconds = 60.0
    watched.look(0, 74)
    assert caplog.messages == []
    watched.look(75)
    assert len(caplog.messages) == 1


def test_member_without_partitions_has_its_assignment_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    watched.membership._told = ("t",)
    watched.look(0, 14)
    assert not watched.says_all()
    watched.look(15)
    assert watched.says_all()
    assert "assigned=0" in caplog.messages[0]
    assert (
        "action='no partition is assigned: check that the topics exist; after" in caplog.messages[0]
    )
    watched.membership._told = ("t",)  # Answered, again without a partition.
    watched.look(16, 29)
    assert not watched.says_all()
    watched.look(30)
    assert watched.says_all()
    assert len(caplog.messages) == 1


def test_errors_of_a_bounded_number_of_brokers_are_remembered() -> None:
    watched = Watched(KEY)
    for node_id in range(100):
        watched.idleness.failed(node_id, NotLeaderOrFollower("moved"))
    assert [*watched.idleness._errors] == [*range(90, 100)]
