"""The requests of a consumer group's members that wait, and what they are answered.

Each request is answered once: a member that asks again while it waits has its first request
answered, as nobody may be listening to it any more.
"""

from __future__ import annotations

from sharegroup.core.consumer_group_member import Call, Member, Reply
from sharegroup.errors import RebalanceInProgress


class Answers:
    """See the module's text."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: list[tuple[Call, Reply]] = []

    def take(self) -> tuple[tuple[Call, Reply], ...]:
        """The answers given since the last `take`."""
        given = tuple(self._given)
        self._given.clear()
        return given

    def give(self, call: Call, reply: Reply) -> None:
        self._given.append((call, reply))

    def park_join(self, member: Member, call: Call) -> None:
        """The member waits for the others to join."""
        self.end_join(member, _asked_again(member))
        member.joining = call

    def park_sync(self, member: Member, call: Call) -> None:
        """The member waits for the leader to assign."""
        self.end_sync(member, _asked_again(member))
        member.syncing = call

    def end_join(self, member: Member, reply: Reply) -> None:
        """It need not wait any more, if it did."""
        if member.joining is not None:
            self.give(member.joining, reply)
            member.joining = None

    def end_sync(self, member: Member, reply: Reply) -> None:
        """It need not wait any more, if it did."""
        if member.syncing is not None:
            self.give(member.syncing, reply)
            member.syncing = None

    def end(self, member: Member, reply: Reply) -> None:
        """Whatever it waits for, it waits in vain."""
        self.end_join(member, reply)
        self.end_sync(member, reply)


def _asked_again(member: Member) -> RebalanceInProgress:
    return RebalanceInProgress(f"member {member.member_id!r} has asked again since")
