"""Writes a record to the dead letters; who called rejects it when that is durable, not before.

A group whose letters the broker writes (`BrokerDeadLetter`), or that has none, needs no writing:
the reject alone is the burial.  A write that fails is the caller's to repeat, under the record's
lock, so that nothing is lost while a topic is missing or full.
"""

from __future__ import annotations

from sharegroup.worker.dead_letters.headers import Buried, letter_headers
from sharegroup.worker.dead_letters.topics import letters_topic
from sharegroup.worker.decisions.steps import Bury
from sharegroup.worker.declared.route import Route
from sharegroup.worker.ports import Clock, Delivery, Outbox, Written


class Burier:
    """The dead letters of one route."""

    __slots__ = ("_by", "_clock", "_outbox", "topic")

    def __init__(self, outbox: Outbox, clock: Clock, route: Route, member_id: str) -> None:
        self._outbox = outbox
        self._clock = clock
        self._by = Buried(route.group, route.shape.name, member_id)
        self.topic = letters_topic(route)
        """Where it writes; None: nowhere."""

    async def bury(self, delivery: Delivery, step: Bury, *, shrunk: bool = False) -> Written | None:
        """Where the letter lies, durable; None when there is none to write.  Raises KafkaError.

        ``shrunk`` leaves out traceback and history, for a letter that was too large with them.
        """
        if self.topic is None:
            return None
        headers = letter_headers(
            delivery, step, self._by, now_ms=self._clock.wall_ms(), shrunk=shrunk
        )
        # Its time is that of writing: one of last year would be deleted at once.
        return await self._outbox.send(
            self.topic, delivery.value, key=delivery.key, headers=headers
        )
