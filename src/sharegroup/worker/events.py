"""Events of the worker and their listeners: ``app.on("record.failed")``.

The log of the worker is an ordinary listener.  An event is built only if it has a listener, so the
hot path costs one dictionary lookup.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sharegroup.worker.redaction import Redaction

log = logging.getLogger(__name__)

EVENTS: Mapping[str, str] = {
    "worker.started": "The worker takes records: it has started, or left the quiet phase.",
    "worker.quiet": "The worker takes no more records and finishes those that it has.",
    "worker.stopping": "The worker finishes records for up to `grace` and releases the others.",
    "worker.stopped": "The worker has left its groups; `details` has the `report` with the counts.",
    "record.started": "A handler starts.",
    "record.succeeded": "A handler returned; `details` has `seconds` and `queued_seconds`.",
    "record.failed": "A handler failed; `error` is the exception, `details` has the next `step`.",
    "record.rejected": "A handler raised Reject, or the record was archived without a dead letter.",
    "record.released": "The record was released to the group.",
    "record.held": "The record waits in this process, locked, for its next attempt.",
    "record.put_aside": "The record must not run here now; it was postponed to run anew or alone.",
    "record.postponed": "The record was written to a retry topic.",
    "record.due": "A record of a retry topic was written to the group's own topic.",
    "record.dead_lettered": "The record was written to the dead-letter topic.",
    "record.unreadable": "A value cannot be decoded for its handler, or a batch cannot be read.",
    "record.filtered": "`only` does not want the record; it was accepted without a run.",
    "record.expired": "The record is too old for its handler; `details` has `expired_at_ms`.",
    "record.unrouted": "No handler in this process takes records of this topic.",
    "record.timed_out": "A handler ran longer than `max_handling` and was cancelled.",
    "record.lock_lost": "The lock ended while a handler ran; the handler was cancelled.",
    "breaker.opened": "The handler is not called now; `details` has `tries_at_ms`.",
    "breaker.half_open": "One record is handled, which decides whether the others are.",
    "breaker.closed": "The handler is called again.",
    "partitions.assigned": "The consumer group gave partitions; `details` has `partitions`.",
    "partitions.revoked": "The group took partitions, after their handlers; `details` as above.",
    "partitions.lost": "The membership ended, and others may own the partitions; as above.",
    "outbox.blocked": "A retry or dead-letter topic cannot be written; the record is held.",
    "outbox.unblocked": "The topic can be written again.",
    "schedule.run": "A run of a schedule was written; `details` has the `schedule` and the `run`.",
    "schedule.missed": "Runs of a schedule were passed over by its policy; `details` has the span.",
    "redaction.failed": "`redact` failed; `details` has the reason, and the text is omitted.",
    "infrastructure.created": "A missing topic or setting was created.",
    "infrastructure.drift": "A topic or setting differs from its declaration.",
    "infrastructure.unknown": "Topics or settings that the user may not see; they are not changed.",
}
"""All event names, each with its meaning."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, as a listener gets it."""

    name: str
    group: str = ""
    handler: str = ""
    topic: str = ""
    """Topic, partition and offset of the delivery; the record's origin is in `record`."""
    partition: int = -1
    offset: int = -1
    attempt: int = 0
    """The number of the attempt, from 1."""
    error: BaseException | None = None
    record: Any = None
    """The `sharegroup.worker.Record`; None if the event is not about a record."""
    details: Mapping[str, Any] = field(default_factory=dict)
    redaction: Redaction | None = None
    """Removes secrets from the texts of ``error``, which is the exception as it was raised."""


Listener = Callable[[Event], None]


class Events:
    """The listeners of each event.  An exception of a listener is logged; it stays registered."""

    __slots__ = ("_listeners", "before_letter", "listened")

    def __init__(self) -> None:
        self.before_letter: Callable[[Event], Awaitable[None]] | None = None
        """Awaited before a dead letter is written, with the event that follows when it is."""
        # Tuples, because a listener may unregister itself while it is called.
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self.listened = self._listeners.keys()
        """The names of events with a listener at the moment; what the hot path looks at."""

    def on(self, name: str, listener: Listener) -> None:
        """Call ``listener`` with each event of this name; ``"*"`` stands for all events."""
        check_name(name)
        for event_name in EVENTS if name == "*" else (name,):
            self._listeners[event_name] = (*self._listeners.get(event_name, ()), listener)

    def off(self, name: str, listener: Listener) -> None:
        """Unregister ``listener``; ``name`` must be the one given to `on`."""
        for event_name in EVENTS if name == "*" else (name,):
            listeners = self._listeners[event_name]
            index = listeners.index(listener)
            self._listeners[event_name] = (*listeners[:index], *listeners[index + 1 :])
            if not self._listeners[event_name]:
                del self._listeners[event_name]

    def wants(self, name: str) -> bool:
        """Whether an event of this name has a listener."""
        return name in self._listeners

    def tell(self, event: Event) -> None:
        """Call the listeners of this event."""
        for listener in self._listeners.get(event.name, ()):
            try:
                listener(event)
            except KeyboardInterrupt:
                raise
            # A faulty listener must not fail the record.  This call does not wait, so not even a
            # CancelledError is one of the task: it would end a slot, and nobody would notice.
            except BaseException:
                log.exception("event=listener_failed of=%s listener=%r", event.name, listener)


def check_name(name: str) -> None:
    """Raise ValueError if there is no event of this name; ``"*"`` is allowed."""
    if name != "*" and name not in EVENTS:
        names = ", ".join(sorted(EVENTS))
        raise ValueError(f"there is no event {name!r}; the events are: {names}, and '*'")
