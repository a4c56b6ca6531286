"""The waiting requests of a consumer group's members, and the answers given to requests.

Each request is answered once. If a member sends a request again while the first one waits, the
first one is answered with an error, because its connection may be gone.
"""

from __future__ import annotations

from sharegroup.core.groups.classic.member import Call, ConsumerGroupMember, Reply
from sharegroup.errors import RebalanceInProgress


class Answers:
    """Collects the answers to requests, and parks requests that have to wait."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: list[tuple[Call, Reply]] = []

    def take(self) -> tuple[tuple[Call, Reply], ...]:
        """Return the answers given since the last `take`."""
        answers = tuple(self._given)
        self._given.clear()
        return answers

    def give(self, call: Call, reply: Reply) -> None:
        """Add the answer to a request; `take` returns it."""
        self._given.append((call, reply))

    def park_join(self, member: ConsumerGroupMember, call: Call) -> None:
        """Let the request wait until the other members have joined."""
        self.end_join(member, _asked_again(member))
        member.joining = call

    def park_sync(self, member: ConsumerGroupMember, call: Call) -> None:
        """Let the request wait until the leader has assigned."""
        self.end_sync(member, _asked_again(member))
        member.syncing = call

    def end_join(self, member: ConsumerGroupMember, reply: Reply) -> None:
        """Answer the member's waiting request to join, if there is one."""
        if member.joining is not None:
            self.give(member.joining, reply)
            member.joining = None

    def end_sync(self, member: ConsumerGroupMember, reply: Reply) -> None:
        """Answer the member's waiting request to sync, if there is one."""
        if member.syncing is not None:
            self.give(member.syncing, reply)
            member.syncing = None

    def end(self, member: ConsumerGroupMember, reply: Reply) -> None:
        """Answer all waiting requests of the member."""
        self.end_join(member, reply)
        self.end_sync(member, reply)


def _asked_again(member: ConsumerGroupMember) -> RebalanceInProgress:
    return RebalanceInProgress(f"member {member.member_id!r} has sent a newer request")
