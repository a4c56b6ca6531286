"""How a handler ends, besides by returning: what it may raise."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.worker.durations import Duration, seconds

PUBLIC = "sharegroup.worker"
"""Where users have these from, and what dead letters and logs say."""


class Outcome(Exception):
    """A handler's decision, raised; every other exception is a failure."""


class Reject(Outcome):
    """This record can never be done: to the dead letters, without another try.

    What it is raised with, as in ``Reject("negative total")``, is the message of its letter.
    """

    __module__ = PUBLIC


class Release(Outcome):
    """Not here, not now: back to the queue, to anyone, at once.  Costs a delivery."""

    __module__ = PUBLIC


class RetryAfter(Outcome):
    """Back to the queue, and not before so long.  It costs an attempt."""

    __module__ = PUBLIC

    def __init__(self, delay: Duration, reason: str = "") -> None:
        # Both, so that a copy from another process is made with both.
        super().__init__(delay, reason)
        self.delay = delay
        self.delay_seconds = seconds(delay)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or f"again after {self.delay}"


class SomeFailed(Exception):
    """Some records of a batch failed, by their index in the list; the others are done."""

    __module__ = PUBLIC

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(errors)
        self.errors = dict(errors)

    def __str__(self) -> str:
        return ", ".join(f"{index}: {error!r}" for index, error in sorted(self.errors.items()))
