"""The error of bytes that are not what a handler takes."""

from __future__ import annotations


class UnreadablePayload(ValueError):
    """A record's bytes are not what its handler takes; its cause is the decoder's error."""

    __module__ = "sharegroup.worker"  # Where users have it from.
