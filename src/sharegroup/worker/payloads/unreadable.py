"""The error of a record whose value a handler cannot decode."""

from __future__ import annotations


class UnreadablePayload(ValueError):
    """A record's value cannot be decoded for its handler; the cause is the decoder's error."""

    __module__ = "sharegroup.worker"  # The module from which users import it.
