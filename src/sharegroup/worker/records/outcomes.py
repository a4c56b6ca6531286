"""Exceptions that end a handler run: decisions of the handler, and interruptions by the worker."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.durations import Duration, delay_seconds, release_seconds

PUBLIC = "sharegroup.worker"
"""The module from which users import these classes; shown in dead letters and logs."""


class HandlerDecision(Exception):
    """Base class of a handler's decisions.  All other exceptions are failures."""


class Reject(HandlerDecision):
    """Raised by a handler to send the record to the dead letters without another attempt.

    Its argument, as in ``Reject("negative total")``, is the message of the dead letter.
    """

    __module__ = PUBLIC


class Release(HandlerDecision):
    """Raised by a handler to release the record to any member.  Costs a delivery, not an attempt.

    It is delivered again after ``delay``, 24 hours at most, which the broker keeps; Apache Kafka
    has no delays, and there this process keeps the record locked for that time.  Without ``delay``
    it is delivered at once, unless the group has ``sharegroup.redelivery.delay.ms``.
    """

    __module__ = PUBLIC
    delay_seconds: float | None = None

    def __init__(self, *reason: object, delay: Duration | None = None) -> None:
        super().__init__(*reason)
        if delay is not None:
            try:
                self.delay_seconds = release_seconds(delay)
            except ValueError as error:
                raise ValueError(f"{error}; a RetryAfter may be longer") from None


class RetryAfter(HandlerDecision):
    """Raised by a handler to retry the record after a delay.  Costs an attempt."""

    __module__ = PUBLIC

    def __init__(self, delay: Duration, reason: str = "") -> None:
        # Both arguments, because unpickling in another process passes `args` to `__init__`.
        super().__init__(delay, reason)
        self.delay = delay
        self.delay_seconds = delay_seconds(delay)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or f"again after {self.delay}"


class SomeFailed(Exception):
    """Raised by a batch handler if some records failed: errors by index in the list.

    The other records of the batch are done.
    """

    __module__ = PUBLIC

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(errors)
        self.errors = dict(errors)

    def __str__(self) -> str:
        return ", ".join(f"{index}: {error!r}" for index, error in sorted(self.errors.items()))


# The reasons for which the worker interrupts a handler. A slot returns them like errors of it.


class Verdict(Exception):
    """The reason for which the worker interrupted a handler."""


class HandlingTimeout(Verdict, TimeoutError):
    """A handler ran longer than its ``max_handling``."""

    __module__ = PUBLIC


class LockLost(Verdict):
    """The lock ended while the handler ran; another member may have the record."""


class Stopped(Verdict):
    """The worker stops, and the grace is over."""


class GivenUp(Verdict):
    """The handler ended after the worker had given it up; its record is already settled."""
