"""One record that this process has under its lock, from being taken to being settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sharegroup.worker.ports import Delivery
from sharegroup.worker.records.story import Story

if TYPE_CHECKING:
    from sharegroup.worker.running.route_runner import RouteRunner

UNREAD = object()
"""In place of a payload that was not decoded yet."""


class Unordered:
    """In place of a payload whose key (``order_by``) can't be had: why."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class InHand:
    """A delivery, what is known of it, and whether it is still ours to decide about."""

    __slots__ = (
        "delivery", "is_done", "key", "payload", "record", "runner", "story", "taken_at",
    )  # fmt: skip

    def __init__(
        self, runner: RouteRunner, delivery: Delivery, story: Story, taken_at: float
    ) -> None:
        # Positional and bare: this runs for every record.
        self.runner = runner
        self.delivery = delivery
        self.story = story
        self.taken_at = taken_at
        self.payload: Any = UNREAD
        self.key: Any = None
        """What it is ordered by; None: by nothing."""
        self.record: Any = None
        """The `Record` that its handler got, if it ran."""
        self.is_done = False
        """Settled, or lost: nothing more is to be done about it."""

    @property
    def place(self) -> tuple[str, int]:
        """The topic and partition of its delivery."""
        return self.delivery.topic, self.delivery.partition

    @property
    def weight(self) -> int:
        """The bytes that waiting here costs, without what every record costs."""
        delivery = self.delivery
        return len(delivery.value or b"") + len(delivery.key or b"")

    def is_lost(self, now: float) -> bool:
        """Whether its lock has ended."""
        delivery = self.delivery
        return delivery.is_lost or now >= delivery.deadline
