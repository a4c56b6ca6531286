"""What one user may take of sessions, groups, offsets and transactional ids: others get some, too.

Each test lets alice take until she is refused, and then bob, who has nothing.  A user without a
part (None), as on a broker without an authorizer, is limited by the limit alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from sharegroup.core.deadlines import Now
from sharegroup.core.groups.classic.classic_groups import ClassicGroups, Committer
from sharegroup.core.groups.classic.member import ClassicGroupLimits, JoinRequest
from sharegroup.core.groups.classic.offsets import OpenTransaction
from sharegroup.core.groups.classic.records import OffsetAndMetadata, OffsetCommit
from sharegroup.core.groups.classic.sizes import ClassicGroupSizeLimits, group_totals
from sharegroup.core.groups.modern.advance import Cluster, ModernGroupLimits
from sharegroup.core.groups.modern.heartbeat import ModernHeartbeat
from sharegroup.core.groups.modern.modern_groups import ModernGroups
from sharegroup.core.groups.modern.sizes import ModernGroupSizeLimits, memory_of_groups
from sharegroup.core.groups.share.heartbeat import ShareGroupLimits, ShareHeartbeat
from sharegroup.core.groups.share.share_group import TopicMetadata
from sharegroup.core.groups.share.share_groups import ShareGroups
from sharegroup.core.groups.share.sizes import GROUP_ROOM_BYTES, SizeLimits
from sharegroup.core.security.principal import USER, Principal
from sharegroup.core.sessions.fetch_session import (
    EVICTION_MS,
    NO_SESSION,
    FetchSender,
    FetchSessions,
    RequestedPartition,
)
from sharegroup.core.sessions.share_session import SessionKey, ShareSessions
from sharegroup.core.transactions.records import (
    TransactionMetadata,
    TransactionState,
    TransactionTombstone,
)
from sharegroup.core.transactions.transactions import (
    Transactions,
    size_bytes,
)
from sharegroup.errors import (
    CoordinatorNotAvailable,
    FetchSessionIdNotFound,
    GroupMaxSizeReached,
    InvalidCommitOffsetSize,
    KafkaError,
    PolicyViolation,
    ShareSessionLimitReached,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName
from tests.support.share_sessions import fetch_filled

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
User = Principal | None
Take = Callable[[str, User], None]
"""Takes one more item of this name for a user."""

TOPIC = TopicMetadata(TopicName("t"), TopicId(UUID(int=1)), 10)
TOPIC_ID = TopicId(UUID(int=7))


def taken(take: Take, user: User, error: type[KafkaError]) -> int:
    """Take until the user is refused; return how many it got."""
    for count in range(1_000):
        try:
            take(f"{user}-{count}", user)
        except error:
            return count
    raise AssertionError("nothing was refused")


# Groups.


def share_groups(**sizes: int) -> tuple[ShareGroups, Take]:
    groups = ShareGroups(user_percent=50)
    limits = ShareGroupLimits(sizes=SizeLimits(**sizes))

    def take(name: str, user: User) -> None:
        request = ShareHeartbeat(
            GroupId(name), MemberId("m"), 0, subscribed_topic_names=(TOPIC.name,), user=user
        )
        topics = {TOPIC.name: TOPIC}
        groups.check_heartbeat(request, limits=limits)
        missing = groups.uninitialized(request, topics)
        groups.check_partitions(request, missing, limits=limits.sizes)
        for record in groups.initialized(request.group_id, missing):
            groups.replay(record)
        records, _ = groups.heartbeat(request, topics, limits=limits, now_ms=0, wall_ms=0)
        for record in records:
            groups.replay(record)
        groups.claim(request.group_id, user)

    return groups, take


@pytest.mark.parametrize(
    "sizes", [{"all_bytes_max": 8 * GROUP_ROOM_BYTES}, {"all_partitions_max": 80}]
)
def test_share_groups_of_one_user_leave_room(sizes: dict[str, int]) -> None:
    _, take = share_groups(**sizes)
    counts = [taken(take, user, GroupMaxSizeReached) for user in (ALICE, BOB, None)]
    assert counts == [4, 4, 0]


def test_members_that_return_after_a_restart_are_not_refused() -> None:
    """Alice has four of eight groups, which nobody owns after the start until she comes back."""
    groups, take = share_groups(all_bytes_max=8 * GROUP_ROOM_BYTES)
    taken(take, None, GroupMaxSizeReached)
    assert len(groups) == 8
    for number in range(8):
        take(f"None-{number}", ALICE)
    assert groups.memory.held_by(ALICE) == 8 * GROUP_ROOM_BYTES
    with pytest.raises(GroupMaxSizeReached):
        take("another", ALICE)


def test_deleted_share_group_is_given_back() -> None:
    groups, take = share_groups(all_bytes_max=8 * GROUP_ROOM_BYTES)
    taken(take, ALICE, GroupMaxSizeReached)
    gone = GroupId("User:alice-0")
    leaving = ShareHeartbeat(gone, MemberId("m"), -1)
    records, _ = groups.heartbeat(leaving, {}, limits=ShareGroupLimits(), now_ms=0, wall_ms=0)
    for record in records:
        groups.replay(record)
    for record in groups.delete_group(gone)[0]:
        groups.replay(record)
    take("another", ALICE)


def test_altered_offsets_count_for_the_user_who_alters_them() -> None:
    groups, take = share_groups(all_partitions_max=80)
    taken(take, ALICE, GroupMaxSizeReached)
    offsets = {TopicIdPartition(TOPIC.topic_id, 0): 0}
    limits = SizeLimits(all_partitions_max=80)
    topics = {TOPIC.name: TOPIC}
    with pytest.raises(GroupMaxSizeReached, match="User:alice holds 40 of 80"):
        groups.alter_offsets(GroupId("new"), offsets, topics, limits=limits, user=ALICE)
    groups.alter_offsets(GroupId("new"), offsets, topics, limits=limits, user=BOB)


def test_groups_of_the_consumer_protocol_of_one_user_leave_room() -> None:
    groups = ModernGroups(memory_of_groups(50))
    limits = ModernGroupLimits(sizes=ModernGroupSizeLimits(all_bytes_max=8 * GROUP_ROOM_BYTES))
    cluster = Cluster({TOPIC.name: TOPIC}, 1, {})

    def take(name: str, user: User) -> None:
        request = ModernHeartbeat(
            GroupId(name),
            MemberId("m"),
            0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=(TOPIC.name,),
            owned=frozenset(),
            user=user,
        )
        groups.check_heartbeat(request, limits)
        records, _ = groups.heartbeat(request, cluster, limits=limits, now=Now(0, 0))
        for record in records:
            groups.replay(record)
        groups.claim(request.group_id, user)

    counts = [taken(take, user, GroupMaxSizeReached) for user in (ALICE, BOB, None)]
    assert counts == [4, 4, 0]


CONSUMERS = ClassicGroupLimits()
NOW = Now(0, 1_700_000_000_000)


def joined(groups: ClassicGroups, name: str, user: User, *, metadata: bytes = b"t") -> None:
    request = JoinRequest(
        group_id=GroupId(name),
        member_id=MemberId(""),
        instance_id=None,
        protocol_type="consumer",
        protocols={"range": metadata},
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        client_id="c",
        client_host="/127.0.0.1",
        new_member_id=MemberId(name),
        must_return=False,
        user=user,
    )
    groups.join(request, 0, now=NOW, limits=CONSUMERS)
    groups.claim(request.group_id, user)


@pytest.mark.parametrize(
    "sizes", [ClassicGroupSizeLimits(groups_max=8), ClassicGroupSizeLimits(all_bytes_max=96_000)]
)
def test_consumer_groups_of_one_user_leave_room(sizes: ClassicGroupSizeLimits) -> None:
    groups = ClassicGroups(lambda _: frozenset(), sizes=sizes, totals=group_totals(50))

    def take(name: str, user: User) -> None:
        joined(groups, name, user, metadata=bytes(10_000))

    counts = [taken(take, user, PolicyViolation) for user in (ALICE, BOB, None)]
    assert counts == [4, 4, 0]


def offset(group_id: str, partition: int) -> OffsetCommit:
    committed = OffsetAndMetadata(7, -1, "", 0, None, TOPIC_ID)
    return OffsetCommit(GroupId(group_id), TopicName("t"), partition, committed)


BYTES_MAX = 80_000
"""A user's half has room for nine groups with ten offsets, or one and four transactions.

A commit for a new group needs more room while it is checked, because its size is estimated upwards.
"""


def committing(*, is_transactional: bool) -> Take:
    groups = ClassicGroups(lambda _: frozenset(), totals=group_totals(50))
    producer_ids: dict[str, int] = {}
    users: set[User] = set()

    def take(name: str, user: User) -> None:
        commits = tuple(offset(f"of-{user}", partition) for partition in range(10))
        if not is_transactional:
            commits = tuple(replace(commit, group_id=GroupId(name)) for commit in commits)
        elif user not in users:
            users.add(user)
            for commit in commits:
                groups.replay(commit)
        committer = Committer(commits[0].group_id, MemberId(""), None, -1, user)
        groups.check_commit(
            committer, commits, bytes_max=BYTES_MAX, now=NOW, is_transactional=is_transactional
        )
        for commit in commits:
            if is_transactional:
                producer_id = producer_ids.setdefault(name, len(producer_ids))
                groups.replay_pending(OpenTransaction(0, producer_id), commit)
            else:
                groups.replay(commit)
        groups.claim(committer.group_id, user)

    return take


def test_committed_offsets_of_one_user_leave_room() -> None:
    take = committing(is_transactional=False)
    counts = [taken(take, user, InvalidCommitOffsetSize) for user in (ALICE, BOB, None)]
    assert counts == [6, 6, 3]


def test_pending_offsets_count_although_their_partitions_were_committed_before() -> None:
    """Each transaction adds memory, also for offsets that others have already."""
    take = committing(is_transactional=True)
    counts = [taken(take, user, InvalidCommitOffsetSize) for user in (ALICE, BOB)]
    assert counts == [4, 4]


def test_owners_of_consumer_groups_are_kept_when_the_log_is_read_again() -> None:
    groups = ClassicGroups(lambda _: frozenset(), totals=group_totals(50))
    groups.replay(offset("a", 0))
    groups.claim(GroupId("a"), ALICE)
    read = ClassicGroups(lambda _: frozenset(), totals=groups.shared_totals.restarted())
    read.replay(offset("a", 0))
    read.start(now=NOW, limits=CONSUMERS)
    count, offsets, _ = read.shared_totals
    assert (count.owner(GroupId("a")), offsets.owner(GroupId("a"))) == (ALICE, ALICE)
    assert offsets.held_by(ALICE) == read.offsets_bytes


# Transactional ids.


def transaction(name: str, state: TransactionState) -> TransactionMetadata:
    return TransactionMetadata(name, 9, 0, 1_000, state, frozenset(), 0, 0)


def taking(transactions: Transactions, state: TransactionState) -> Take:
    bytes_max = 8 * size_bytes(transaction("User:alice-0", state))

    def take(name: str, user: User) -> None:
        record = transaction(name, state)
        for tombstone in transactions.forgotten_for(record, bytes_max=bytes_max, user=user):
            transactions.replay(tombstone, now=Now(0, 0))
        transactions.replay(record, now=Now(0, 0))
        transactions.claim(name, user)

    return take


def test_open_transactions_of_one_user_leave_room() -> None:
    take = taking(Transactions(user_percent=50), TransactionState.ONGOING)
    counts = [taken(take, user, CoordinatorNotAvailable) for user in (ALICE, BOB)]
    assert counts == [4, 4]


def test_user_with_too_many_transactional_ids_loses_its_own_idle_ones() -> None:
    transactions = Transactions(user_percent=50)
    take = taking(transactions, TransactionState.EMPTY)
    take("of-bob", BOB)
    for number in range(20):
        take(f"User:alice-{number}", ALICE)
    known = [record.transactional_id for record in transactions]
    assert known == ["of-bob", "User:alice-17", "User:alice-18", "User:alice-19"]


def test_transactional_ids_without_an_owner_are_claimed_once() -> None:
    transactions = Transactions(user_percent=50)
    record = transaction("a", TransactionState.EMPTY)
    transactions.replay(record, now=Now(0, 0))
    transactions.claim("a", None)
    transactions.claim("a", ALICE)
    transactions.claim("a", BOB)
    transactions.claim("unknown", ALICE)
    assert transactions.memory.held_by(ALICE) == transactions.size_bytes
    transactions.replay(TransactionTombstone("a"), now=Now(0, 0))
    assert transactions.memory.held_by(ALICE) == 0


# Sessions.


def share_partitions(count: int) -> list[TopicIdPartition]:
    return [TopicIdPartition(TOPIC_ID, partition) for partition in range(count)]


@pytest.mark.parametrize(
    ("sessions_max", "partitions_max"), [(8, 1_000), (1_000, 80)], ids=["sessions", "partitions"]
)
def test_share_sessions_of_one_user_leave_room(sessions_max: int, partitions_max: int) -> None:
    """Each session is on a connection of its own, so an equal share would be one session."""
    sessions = ShareSessions(sessions_max, partitions_max=partitions_max, user_percent=50)

    def take(name: str, user: User) -> None:
        fetch_filled(
            sessions,
            SessionKey(GroupId("g"), MemberId(name)),
            0,
            connection_id=name,
            partitions=share_partitions(10),
            forgotten=(),
            has_acks=False,
            user=user,
        )

    counts = [taken(take, user, ShareSessionLimitReached) for user in (ALICE, BOB)]
    assert counts == [4, 4]
    assert sessions.user_refused_count == 2
    take("User:alice-0", ALICE)  # Its session is replaced, so it needs no room.


def test_share_session_that_grows_beyond_the_part_of_its_user_is_refused_and_stays() -> None:
    sessions = ShareSessions(10, partitions_max=80, user_percent=50)

    def ask(epoch: int, count: int, *, user: User = ALICE, member: str = "m") -> int:
        outcome = fetch_filled(
            sessions,
            SessionKey(GroupId("g"), MemberId(member)),
            epoch,
            connection_id=member,
            partitions=share_partitions(count),
            forgotten=(),
            has_acks=False,
            user=user,
        )
        return len(tuple(outcome.partitions))

    assert ask(0, 10, member="other") == 10
    assert ask(0, 10) == 10
    with pytest.raises(ShareSessionLimitReached, match="User:alice holds 20 of 80"):
        ask(1, 31)
    assert ask(1, 30) == 30, "the refused request did not use up its epoch"
    assert ask(0, 20, user=BOB, member="of-bob") == 20


FROM_5 = RequestedPartition(fetch_offset=5, bytes_max=100, leader_epoch=-1)


def opened(
    sessions: FetchSessions, number: int, user: User, *, partitions: int = 10, now_ms: int = 0
) -> int:
    return sessions.plan(
        0,
        0,
        sender=FetchSender(number, user=user),
        named={(f"t{partition}", 0): FROM_5 for partition in range(partitions)},
        forgotten=(),
        now_ms=now_ms,
    ).session_id


@pytest.mark.parametrize(
    ("sessions_max", "partitions_max"), [(8, 1_000), (1_000, 80)], ids=["sessions", "partitions"]
)
def test_fetch_sessions_of_one_user_leave_room(sessions_max: int, partitions_max: int) -> None:
    sessions = FetchSessions(sessions_max, partitions_max=partitions_max, user_percent=50)
    of_alice = [opened(sessions, number, ALICE) for number in range(10)]
    assert [bool(session_id) for session_id in of_alice] == [True] * 4 + [False] * 6
    of_bob = [opened(sessions, 100 + number, BOB) for number in range(3)]
    assert [bool(session_id) for session_id in of_bob] == [True, True, True]
    assert sessions.user_refused_count == 6


def test_fetch_sessions_that_are_not_used_make_room_for_others_of_their_user() -> None:
    sessions = FetchSessions(8, user_percent=50)
    for number in range(4):
        assert opened(sessions, number, ALICE)
    assert opened(sessions, 4, ALICE, now_ms=EVICTION_MS) == NO_SESSION
    assert opened(sessions, 4, ALICE, now_ms=EVICTION_MS + 1) != NO_SESSION
    assert len(sessions) == 4


def test_fetch_session_that_grows_beyond_the_part_of_its_user_is_closed() -> None:
    sessions = FetchSessions(8, partitions_max=80, user_percent=50)
    session_id = opened(sessions, 1, ALICE)
    more = {("more", partition): FROM_5 for partition in range(31)}
    with pytest.raises(FetchSessionIdNotFound, match="User:alice"):
        sessions.plan(session_id, 1, sender=FetchSender(1), named=more, forgotten=(), now_ms=0)
    session_id = opened(sessions, 1, None)
    plan = sessions.plan(session_id, 1, sender=FetchSender(1), named=more, forgotten=(), now_ms=0)
    assert len(plan.partitions) == 41
