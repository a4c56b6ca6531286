"""A record that this process has taken, until it is settled."""

from __future__ import annotations

from typing import Any

from sharegroup.dead_letters.story import Story
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.ports import DeliveredRecord

NOT_DECODED = object()
"""Placeholder for a payload that was not decoded yet."""


class OrderByFailure:
    """Placeholder for the payload of a record whose ``order_by`` function failed."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class TakenRecord:
    """A delivered record with its route, story, payload and key, and whether it is settled."""

    __slots__ = (
        "delivery", "handler_record", "is_done", "key", "key_queue", "payload", "route", "story",
        "taken_at",
    )  # fmt: skip

    def __init__(
        self, route: Route, delivery: DeliveredRecord, story: Story, taken_at: float
    ) -> None:
        # Positional parameters and no dataclass, because this runs for every record.
        self.route = route
        """The route whose handler runs for it."""
        self.delivery = delivery
        self.story = story
        self.taken_at = taken_at
        self.payload: Any = NOT_DECODED
        self.key: Any = None
        """The ordering key; None if the record is not ordered."""
        self.key_queue: Any = None
        """The `KeyQueue` that has the record; None if none has, or has it any more."""
        self.handler_record: Any = None
        """The `Record` that the handler got; None until it runs."""
        self.is_done = False
        """Whether the record was settled or lost, so that nothing remains to be done."""

    @property
    def topic_partition(self) -> tuple[str, int]:
        """The topic and partition of its delivery."""
        return self.delivery.topic, self.delivery.partition

    @property
    def weight(self) -> int:
        """The size of key and value in bytes, for the limits of held records."""
        delivery = self.delivery
        return len(delivery.value or b"") + len(delivery.key or b"")

    def runs_alone(self, alone_from: int) -> bool:
        """Whether its handler must run alone, so that it is put aside instead of released.

        That is the case from this delivery count on, and for a suspect.
        """
        return self.delivery.delivery_count >= alone_from or self.story.suspicions > 0

    @property
    def has_unsaved_failures(self) -> bool:
        """Whether it failed since it was read, so that only this process knows of it."""
        # Of a record that was never held, without a look at its headers.
        return (
            self.story.failures > 0
            and self.handler_record is not None
            and self.story.failures > story_of(self.delivery.headers).failures
        )

    def is_lost(self, now: float) -> bool:
        """Whether the acquisition lock has ended."""
        delivery = self.delivery
        return delivery.is_lost or now >= delivery.deadline
