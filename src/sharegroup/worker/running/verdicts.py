"""The reasons for which the worker interrupts a handler; a slot returns them like errors of it."""

from __future__ import annotations


class Verdict(Exception):
    """The reason for which the worker interrupted a handler."""


class HandlingTimeout(Verdict, TimeoutError):
    """A handler ran longer than its ``max_handling``."""

    __module__ = "sharegroup.worker"  # Users import it from there.


class LockLost(Verdict):
    """The lock ended while the handler ran; another member may have the record."""


class Stopped(Verdict):
    """The worker stops, and the grace is over."""


class GivenUp(Verdict):
    """The handler ended after the worker had given it up; its record is already settled."""
