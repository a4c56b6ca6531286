"""Runs Python so that it does not outlive its parent process.

    python -m examples.flights.leash PARENT-PID ARGUMENTS...

becomes ``python ARGUMENTS...``, to which the kernel sends SIGKILL when the parent dies. This
works however the parent dies, because it runs no code of the parent. The setting survives exec.
Only Linux has it; on other systems the children of a demo killed with ``kill -9`` stay behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, arguments: list[str]) -> None:
    """Replace this process with ``python ARGUMENTS...``, which dies with the parent."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != parent:  # The parent died before the call of prctl.
            sys.exit(1)
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606  Our own arguments.


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
