"""How much a share consumer takes, changed while it runs.

A worker knows what no setting does: how many handlers are free, and when it is about to
stop.

    resize      the window follows the speed of the handlers
    quiet       nothing more is taken: the member stays, is assigned nothing, and keeps its locks
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.client.consumer_config import AcquireMode

if TYPE_CHECKING:
    from sharegroup.client.share_member import ShareMember
    from sharegroup.errors import KafkaError


class Flow:
    """See the module's text; for explicit mode with a window."""

    __slots__ = ("_member",)

    def __init__(self, member: ShareMember) -> None:
        self._member = member

    @property
    def failure(self) -> KafkaError | None:
        """Why this member can never poll again; None: it can."""
        return self._member.heartbeats.failure

    @property
    def is_joined(self) -> bool:
        """Whether the group's coordinator knows this member."""
        return self._member.membership.epoch > 0

    @property
    def renews(self) -> bool:
        """Whether locks are renewed; turned off when broker or group forbid it."""
        return self._member.renews

    def resize(self, in_flight_max: int, *, acquire_mode: AcquireMode, max_wait_ms: int) -> None:
        """The window, how exactly it is kept to, and how long a fetch may wait for records."""
        window = self._member.window
        window.in_flight_max = in_flight_max
        window.acquire_mode = acquire_mode
        window.max_wait_ms = max_wait_ms

    def quiet(self, *, give_back_below: int) -> None:
        """Take nothing more.  What was fetched ahead goes back, but for records with so many
        deliveries behind them that a further one may be their last: `poll` still hands them out.
        """
        member = self._member
        member.membership.quiet = True
        member.give_back_below = give_back_below
        member.heartbeats.wake()
        member.give_back()

    def resume(self) -> None:
        """Take records again."""
        self._member.membership.quiet = False
        self._member.heartbeats.wake()
