"""How a handler ends, besides by returning: what it may raise."""

from __future__ import annotations


class Outcome(Exception):
    """A handler's decision, raised; every other exception is a failure."""


class Reject(Outcome):
    """This record can never be done: to the dead letters, without another try."""


class Release(Outcome):
    """Not here, not now: back to the queue, to anyone, at once.  Costs a delivery."""


class RetryAfter(Outcome):
    """Back to the queue, and not before so long.  It costs an attempt."""

    def __init__(self, delay: float | str, reason: str = "") -> None:
        super().__init__(reason)
        self.delay = delay
