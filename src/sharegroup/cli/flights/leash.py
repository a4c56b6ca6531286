"""Run Python so that it does not outlive the process that started it.

    python -m sharegroup.cli.flights.leash PARENT-PID ARGUMENTS...

becomes ``python ARGUMENTS...`` with the kernel's promise of a SIGKILL when the parent dies,
however it dies: no code of the parent has to run for it.  The promise survives exec.  Linux
alone has it; elsewhere the children of a demo that is killed with ``kill -9`` stay behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, arguments: list[str]) -> None:
    """Become ``python ARGUMENTS...``."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != parent:  # It died before the promise was made.
            sys.exit(1)
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606  Our own arguments.


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
