"""Divides the file descriptors of the process between connections and files of the logs.

    soft limit of RLIMIT_NOFILE
    ├─ in use when the broker starts
    ├─ DESCRIPTORS_RESERVE    for a moment: checkpoints, synced folders, metrics, name lookups
    ├─ files of the logs      one eighth, twice: open, and in a round of syncs at the same time
    └─ connections            the rest, at most max.connections

``sharegroup serve`` has a process of its own, so it first raises the soft limit to the hard limit.
A broker inside another program leaves the limit as it is, because the program may depend on it:
``select`` fails with descriptors above 1,023.
"""

from __future__ import annotations

import logging
import os
import resource
from dataclasses import dataclass

from sharegroup.storage.disk.stored_file import OPEN_FILES_CEILING, OPEN_FILES_MAX

log = logging.getLogger(__name__)

DESCRIPTORS_RESERVE = 64
"""Descriptors that neither connections nor files of the logs may use."""

FILES_SHARE = 8
"""The divisor of free descriptors for files of the logs that are in no round of syncs."""

FILES_MIN = 16
CONNECTIONS_MIN = 1
UNLIMITED = 1 << 20
"""The limit that is assumed if the system has none."""

_DESCRIPTOR_FOLDERS = ("/proc/self/fd", "/dev/fd")


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The number of descriptors that each part of the broker may use."""

    limit: int
    connections_max: int
    idle_files_max: int
    """Files of the logs that can be closed at once."""
    files_max: int
    """Files of the logs that are in no round of syncs."""


def raise_limit() -> None:
    """Raise the soft limit of the process to the hard limit, and log the result; never fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = UNLIMITED if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= target:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError) as error:
        log.warning(
            "event=descriptors_not_raised limit=%d wanted=%d error=%r", soft, target, str(error)
        )
    else:
        log.info("event=descriptors_raised limit=%d before=%d", target, soft)


def divide(connections_max: int) -> Descriptors:
    """Divide the descriptors of this process, given those in use now, and log the division."""
    in_use = open_count()
    parts = division(limit(), in_use=in_use, connections_max=connections_max)
    log.info(
        "event=descriptors limit=%d in_use=%d connections=%d files=%d",
        parts.limit,
        in_use,
        parts.connections_max,
        parts.files_max,
    )
    if parts.connections_max < connections_max:
        log.info(
            "event=connections_bounded max=%d configured=%d action='raise ulimit -n'",
            parts.connections_max,
            connections_max,
        )
    return parts


def division(limit_count: int, *, in_use: int, connections_max: int) -> Descriptors:
    """Divide ``limit_count`` descriptors, ``in_use`` of which are already open."""
    free = max(0, limit_count - in_use - DESCRIPTORS_RESERVE)
    files = min(max(FILES_MIN, free // FILES_SHARE), OPEN_FILES_CEILING)
    return Descriptors(
        limit_count,
        max(CONNECTIONS_MIN, min(connections_max, free - 2 * files)),
        min(files, OPEN_FILES_MAX),
        files,
    )


def limit() -> int:
    """Return the soft limit of the process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def open_count() -> int:
    """Return the number of open descriptors of the process; 0 if the system does not report it."""
    for folder in _DESCRIPTOR_FOLDERS:
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return 0
