"""Writes records to the dead-letter topic of a route.

The caller rejects a record after its dead letter is durable.  If a write fails, the caller repeats
it under the record's lock, so no record is lost while the topic cannot be written.

If the broker writes the letters (`BrokerDeadLetter`), or if there are none, nothing is written and
the caller only rejects.
"""

from __future__ import annotations

from sharegroup.worker.dead_letters.headers import Buried, letter_headers
from sharegroup.worker.dead_letters.topics import letters_topic
from sharegroup.worker.decisions.steps import Bury
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.ports import DeliveredRecord, Outbox, WorkerClock, WrittenRecord


class Burier:
    """Writes the dead letters of one route."""

    __slots__ = ("_by", "_clock", "_outbox", "topic")

    def __init__(self, outbox: Outbox, clock: WorkerClock, route: Route, member_id: str) -> None:
        self._outbox = outbox
        self._clock = clock
        self._by = Buried(route.group, route.shape.name, member_id, route.redaction)
        self.topic = letters_topic(route)
        """The topic that it writes to; None if the worker writes no letters for this route."""

    async def bury(
        self, delivery: DeliveredRecord, step: Bury, *, shrunk: bool = False
    ) -> WrittenRecord | None:
        """Write the dead letter and return where it was written, once it is durable.

        Returns None if the worker writes no letters for this route.  Raises KafkaError.
        ``shrunk`` omits traceback and history, for a letter that is too large with them.
        """
        if self.topic is None:
            return None
        headers = letter_headers(
            delivery, step, self._by, now_ms=self._clock.wall_ms(), shrunk=shrunk
        )
        # Without the record's timestamp, so that retention does not delete an old record's letter.
        return await self._outbox.send(
            self.topic, delivery.value, key=delivery.key, headers=headers
        )
