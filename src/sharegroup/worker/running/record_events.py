"""Tells the listeners of an application's events, and the log, about records of one group."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sharegroup.errors import KafkaError
from sharegroup.worker.events import Event, Events
from sharegroup.worker.running.taken_record import TakenRecord

log = logging.getLogger(__name__)


class RecordEvents:
    """Builds the events and log lines about records of one share group."""

    __slots__ = ("_events", "_group", "wants")

    def __init__(self, group: str, events: Events) -> None:
        self._group = group
        self._events = events
        self.wants = events.wants
        """Whether an event of this name has a listener."""

    def tell(
        self,
        name: str,
        record: TakenRecord,
        error: BaseException | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Send an event about a record to its listeners, if there are any."""
        if self.wants(name):
            delivery, route = record.delivery, record.route
            self._events.tell(
                Event(
                    name,
                    group=self._group,
                    handler=route.shape.name,
                    topic=delivery.topic,
                    partition=delivery.partition,
                    offset=delivery.offset,
                    attempt=record.story.failures + 1,
                    error=error,
                    record=record.handler_record,
                    details=details or {},
                    redaction=route.redaction,
                )
            )

    def say(self, level: int, event: str, record: TakenRecord, text: str) -> None:
        """Log a line about a record."""
        delivery = record.delivery
        log.log(
            level,
            "event=%s group=%s handler=%s topic=%s partition=%s offset=%s attempt=%s %s",
            event,
            self._group,
            record.route.shape.name,
            delivery.topic,
            delivery.partition,
            delivery.offset,
            record.story.failures + 1,
            text,
        )

    def tell_blocked(self, topic: str, error: KafkaError | None, record: TakenRecord) -> None:
        """Tell that writes to a topic fail with this error; None if they succeed again.

        ``record`` is the one whose write showed it.
        """
        event = "outbox.unblocked" if error is None else "outbox.blocked"
        if self.wants(event):
            delivery = record.delivery
            self._events.tell(
                Event(
                    event,
                    group=self._group,
                    topic=delivery.topic,
                    partition=delivery.partition,
                    offset=delivery.offset,
                    error=error,
                    record=record.handler_record,
                    details={"of": topic},
                )
            )
