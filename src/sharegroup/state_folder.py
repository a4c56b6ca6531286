"""Where programs keep files of a user that survive a restart of the machine.

$XDG_STATE_HOME/sharegroup       or ~/.local/state/sharegroup
"""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Return the folder, which may not exist yet.

    Raises RuntimeError if the user has no home directory.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    # A relative one is invalid (XDG Base Directory Specification), and each process would have its
    # own.
    folder = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return folder / "sharegroup"
