"""Configures glibc to keep freed memory for the next large message.

A large message arrives in pieces of 256 KiB that are joined: a few MiB that are freed a millisecond
later.  By default glibc returns them to the system, so the next message is received into fresh
pages.  The kernel's work for fresh pages is about half of the receiver's CPU time.

With records of 1 KiB, the broker spends 1.8 microseconds of CPU on each produced record by default
and 0.9 with this setting.  A Spark driver that receives responses of 8 MiB spends 0.65 microseconds
on each record by default and 0.36 with this setting.

The price is memory that the process keeps after freeing it.  Only processes of this project use the
setting; a process that embeds a broker or a client decides about its memory itself.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
"""Parameters of glibc's ``mallopt``."""


def keep_for_requests() -> None:
    """Keep up to 16 MiB of freed memory, for a broker. Requests above 4 MiB are rare."""
    _keep(16 * 1024 * 1024, block_bytes_max=4 * 1024 * 1024)


def keep_for_answers() -> None:
    """Keep up to 64 MiB of freed memory, for a process that receives 8 MiB responses in threads.

    It uses one arena: other arenas cannot grow beyond 64 MiB, and threads that share Python's
    interpreter lock gain nothing from more arenas.
    """
    _keep(64 * 1024 * 1024, block_bytes_max=32 * 1024 * 1024, arenas_max=1)


def _keep(kept_bytes: int, *, block_bytes_max: int, arenas_max: int | None = None) -> None:
    """Set the malloc parameters of glibc. Without glibc this does nothing.

    Blocks larger than ``block_bytes_max`` are still returned to the system when they are freed.
    Older versions of glibc refuse a ``block_bytes_max`` above 32 MiB.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    if arenas_max is not None:
        mallopt(_ARENA_MAX, arenas_max)
    mallopt(_MMAP_THRESHOLD, block_bytes_max)
    mallopt(_TRIM_THRESHOLD, kept_bytes)
