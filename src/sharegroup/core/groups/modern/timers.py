"""The timers of the members of consumer groups of KIP-848.

A timer of a member that does not do its part in time ends, and the member is removed. Commands set
timers directly, before their records are replayed. So records that a command returns for a member
that stays must not contain the tombstone of this member, whose replay cancels all its timers.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sharegroup.core.deadlines import Deadlines
from sharegroup.core.groups.modern.member import STATIC_LEAVE_EPOCH, ModernMember
from sharegroup.core.groups.modern.records import MemberState
from sharegroup.ids import GroupId, MemberId


class Timer(StrEnum):
    """What a member has to do in time, so that it stays in its group."""

    SESSION = "session"
    """Send a heartbeat."""
    REVOCATION = "revocation"
    """Give up the partitions that are pending revocation (its rebalance timeout)."""
    JOIN = "join"
    """Join again, as the reply to a classic heartbeat has asked for."""
    SYNC = "sync"
    """Fetch the assignment, after it has joined with the classic protocol."""


class MemberTimerKey(NamedTuple):
    """The key of a timer."""

    group_id: GroupId
    member_id: MemberId
    timer: Timer


class MemberTimers:
    """The timers of the members of all groups."""

    __slots__ = ("_deadlines",)

    def __init__(self) -> None:
        self._deadlines = Deadlines[MemberTimerKey]()

    def set(self, group_id: GroupId, member_id: MemberId, timer: Timer, due_ms: int) -> None:
        """Set a timer, in place of an earlier or later one."""
        self._deadlines.set(MemberTimerKey(group_id, member_id, timer), due_ms=due_ms)

    def has(self, group_id: GroupId, member_id: MemberId, timer: Timer) -> bool:
        """Whether the timer is set."""
        return self._deadlines.has(MemberTimerKey(group_id, member_id, timer))

    def cancel(self, group_id: GroupId, member_id: MemberId, timer: Timer) -> None:
        """Cancel the timer, if it is set."""
        self._deadlines.cancel(MemberTimerKey(group_id, member_id, timer))

    def cancel_all(self, group_id: GroupId, member_id: MemberId) -> None:
        """Cancel the timers of a member that is removed."""
        for timer in Timer:
            self.cancel(group_id, member_id, timer)

    def next_ms(self) -> int | None:
        """Return when the first timer ends; None if none is set."""
        return self._deadlines.next_ms()

    def passed(self, now_ms: int) -> tuple[MemberTimerKey, ...]:
        """Return the timers that have ended, sorted; they stay until they are cancelled."""
        return self._deadlines.passed(now_ms)

    def follow_protocol(
        self, group_id: GroupId, stored_member: ModernMember | None, after: ModernMember
    ) -> None:
        """Cancel the timers of the other protocol if a member changes its protocol."""
        if stored_member is None or (stored_member.classic is None) == (after.classic is None):
            return
        # They wait for requests that the member no longer sends, and would remove it.
        former = (Timer.JOIN, Timer.SYNC) if after.classic is None else (Timer.REVOCATION,)
        for timer in former:
            self.cancel(group_id, after.member_id, timer)

    def follow_reconciliation(
        self,
        group_id: GroupId,
        stored_member: ModernMember | None,
        after: ModernMember,
        now_ms: int,
    ) -> None:
        """Give a member that has to revoke partitions its rebalance timeout."""
        if after.classic is not None or (
            stored_member is not None
            and (stored_member.state, stored_member.member_epoch)
            == (after.state, after.member_epoch)
            # The same object has the same partitions. If they changed, the member gets all its time
            # again.
            and stored_member.pending_revocation is after.pending_revocation
        ):
            return
        # KIP-848 «Rebalance Process»: a member that does not confirm in time is removed, because
        # nobody else can read its partitions until then.
        if must_revoke(after):
            due_ms = now_ms + max(after.rebalance_timeout_ms, 0)
            self.set(group_id, after.member_id, Timer.REVOCATION, due_ms)
        else:
            self.cancel(group_id, after.member_id, Timer.REVOCATION)


def must_revoke(member: ModernMember) -> bool:
    """Return whether others wait for partitions of the member until its rebalance timeout."""
    return (
        member.state is MemberState.UNREVOKED_PARTITIONS
        # A static member that is away for a while has kept the state, and nothing to revoke.
        and member.member_epoch != STATIC_LEAVE_EPOCH
    )
