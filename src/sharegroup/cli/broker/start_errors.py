"""Explains the operating system's errors at the start of `sharegroup serve`, in one line.

The usual ones are a second broker on the same port or data directory, and missing rights.
"""

from __future__ import annotations

import errno
import re
import socket
from pathlib import Path

ADDRESS = re.compile(r"\('([^']+)', (\d+)|(\S+):(\d+)")
"""An address in the texts of asyncio and of our own listeners."""

OTHER_PORT = "choose another port with --port or --metrics-port (0: a free port)"
OTHER_DIRECTORY = "choose another data directory with --data"


def explained(error: OSError) -> str | None:
    """Return the cause and what to do next; None if the error is not one of the start."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return _about_file(error, reason)
    if isinstance(error, socket.gaierror):
        return f"the address to listen on is not known: {reason}; check --host"
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"{_address(reason)} is in use by another process, perhaps by another broker: stop "
                f"that process, or {OTHER_PORT}"
            )
        case errno.EADDRNOTAVAIL:
            return f"{_address(reason)} is not an address of this machine; check --host"
        case errno.EACCES | errno.EPERM:
            return (
                f"this user may not listen on {_address(reason)}: ports below 1024 need "
                f"administrator rights; {OTHER_PORT}"
            )
    return None


def _about_file(error: OSError, reason: str) -> str:
    path = Path(str(error.filename))
    if isinstance(error, BlockingIOError):
        return (
            f"the data directory {path.parent} is {reason}: stop that broker, or {OTHER_DIRECTORY}"
        )
    return f"{path}: {reason}; {OTHER_DIRECTORY}, or correct its rights and its file system"


def _address(reason: str) -> str:
    found = ADDRESS.search(reason)
    if found is None:
        return f"the address ({reason})"
    return f"{found[1]}:{found[2]}" if found[1] else f"{found[3]}:{found[4]}"
