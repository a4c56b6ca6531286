"""Everything that happens, told to whoever wants to know: ``app.on("record.failed")``.

Metrics, traces and logs are listeners like any other.  An event is built only when somebody
listens, so that the quick path costs one look into a dictionary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)

EVENTS: Mapping[str, str] = {
    "worker.started": "The group's member runs.",
    "worker.quiet": "It takes no more records and finishes what it has.",
    "worker.stopping": "It finishes what fits in `grace` and gives back the rest.",
    "worker.stopped": "It has left the group; `details` has what was finished and given back.",
    "record.started": "A handler begins.",
    "record.succeeded": "A handler returned; `details` has `seconds` and `queued_seconds`.",
    "record.failed": "A handler failed; `error` says how, `details` what is done about it.",
    "record.rejected": "A handler raised Reject, or there are no dead letters to write it to.",
    "record.released": "The record was given back to the group.",
    "record.held": "It waits here, locked, for its next try.",
    "record.postponed": "It was written to a retry topic.",
    "record.due": "A retry topic's record was written to the group's own topic.",
    "record.dead_lettered": "It was written to the dead letters.",
    "record.unreadable": "Its bytes are not what the handler takes.",
    "record.unrouted": "No handler of this process takes records of its topic.",
    "record.timed_out": "A handler ran longer than `max_handling` and was cancelled.",
    "record.lock_lost": "The lock ended while a handler ran; the handler was cancelled.",
    "outbox.blocked": "A retry topic or dead letters can't be written; the record is held.",
    "outbox.unblocked": "They can be written again.",
    "infrastructure.created": "A missing topic or setting was made.",
    "infrastructure.drift": "A topic or setting is not as declared.",
}
"""Every name there is, and what it tells."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened."""

    name: str
    group: str = ""
    handler: str = ""
    topic: str = ""
    """Topic, partition and offset are those of the delivery; the origin is in `record`."""
    partition: int = -1
    offset: int = -1
    attempt: int = 0
    """The run of the handler that it is about, from 1."""
    error: BaseException | None = None
    record: Any = None
    """The `sharegroup.worker.Record`, where there is one."""
    details: Mapping[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]


class Events:
    """Who listens to what.  A listener that raises is logged and goes on listening."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        # Tuples: a listener may leave while it is told.
        self._listeners: dict[str, tuple[Listener, ...]] = {}

    def on(self, name: str, listener: Listener) -> None:
        """Call ``listener`` with each event of this name; ``"*"``: with all."""
        check_name(name)
        for one in EVENTS if name == "*" else (name,):
            self._listeners[one] = (*self._listeners.get(one, ()), listener)

    def off(self, name: str, listener: Listener) -> None:
        """Never call ``listener`` again; ``name`` as it was given to `on`."""
        for one in EVENTS if name == "*" else (name,):
            there = self._listeners[one]
            at = there.index(listener)
            self._listeners[one] = (*there[:at], *there[at + 1 :])
            if not self._listeners[one]:
                del self._listeners[one]

    def wants(self, name: str) -> bool:
        """Whether an event of this name would reach anyone."""
        return name in self._listeners

    def tell(self, event: Event) -> None:
        """Call the listeners."""
        for listener in self._listeners.get(event.name, ()):
            try:
                listener(event)
            except Exception:  # A listener is not what the record is about.
                log.exception("event=listener_failed of=%s listener=%r", event.name, listener)


def check_name(name: str) -> None:
    """Raise ValueError when there is no such event."""
    if name != "*" and name not in EVENTS:
        known = ", ".join(sorted(EVENTS))
        raise ValueError(f"there is no event {name!r}; there are: {known}, and '*'")
