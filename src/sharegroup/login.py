"""Names who gives a command or starts a job, if no user of the cluster is known."""

from __future__ import annotations

import getpass
import os
import socket


def login() -> str:
    """Return the user of this process at its machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A number without a name, as in many containers.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
