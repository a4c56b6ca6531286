"""Deadlines of members, kept in a heap that learns of renewals late."""

from __future__ import annotations

from sharegroup.core.share_group_sessions import MemberSessions
from sharegroup.ids import GroupId, MemberId

M, N = ((GroupId("g"), MemberId(name)) for name in "mn")


def test_nobody_expires_when_nobody_is_there() -> None:
    sessions = MemberSessions()
    assert (sessions.next_expiry_ms(), sessions.expired(10**9)) == (None, ())


def test_renewed_session_ends_later() -> None:
    sessions = MemberSessions()
    sessions.renew(M, deadline_ms=100)
    sessions.renew(N, deadline_ms=150)
    sessions.renew(M, deadline_ms=200)
    assert sessions.next_expiry_ms() == 150
    assert sessions.expired(149) == ()
    assert sessions.expired(150) == (N,)


def test_session_may_get_shorter() -> None:
    sessions = MemberSessions()
    sessions.renew(M, deadline_ms=100)
    sessions.renew(M, deadline_ms=50)
    assert (sessions.next_expiry_ms(), sessions.expired(50)) == (50, (M,))
    sessions.renew(M, deadline_ms=200)
    assert sessions.next_expiry_ms() == 200


def test_expired_member_stays_until_its_session_is_ended() -> None:
    sessions = MemberSessions()
    sessions.renew(M, deadline_ms=100)
    assert sessions.expired(100) == sessions.expired(100) == (M,)
    sessions.end(M)
    assert (sessions.next_expiry_ms(), len(sessions)) == (None, 0)


def test_ended_session_can_begin_again() -> None:
    sessions = MemberSessions()
    sessions.renew(M, deadline_ms=100)
    sessions.end(M)
    sessions.renew(M, deadline_ms=300)
    assert (sessions.next_expiry_ms(), sessions.expired(100)) == (300, ())


def test_heap_stays_small_however_often_members_come_and_go() -> None:
    sessions = MemberSessions()
    for turn in range(10_000):
        sessions.renew((GroupId("g"), MemberId(str(turn))), deadline_ms=10**6 + turn)
        sessions.end((GroupId("g"), MemberId(str(turn))))
    sessions.renew(M, deadline_ms=10**7)
    assert len(sessions._heap) < 100
    assert sessions.next_expiry_ms() == 10**7
