"""Have freed memory kept for the next large answer, instead of given back to the system.

A large answer comes in pieces of 256 KiB that are then put together.  By default glibc gives
many such blocks back when they are freed, so the next answer is received into fresh pages, and
the kernel's work for those is nearly half of the receiver's: with answers of 8 MiB and records of
1 KiB a driver spends 0.65 microseconds on each record, and 0.36 with this.

The price is that a process keeps up to `KEPT_BYTES` that it has freed.  One arena, because the
others can't grow beyond 64 MiB, and threads that hold Python's lock gain nothing from more.
"""

from __future__ import annotations

import ctypes
import sys

KEPT_BYTES = 64 * 1024 * 1024
BLOCK_BYTES_MAX = 32 * 1024 * 1024
"""Larger blocks are given back, each by itself; older glibcs refuse a higher limit."""

_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
"""Parameters of glibc's ``mallopt``."""


def keep_freed_memory() -> None:
    """For processes that receive large answers; does nothing where there is no glibc."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, BLOCK_BYTES_MAX)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
