"""The signals that ask a program of this project to stop."""

from __future__ import annotations

import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""By a supervisor, by Ctrl-C, and by a terminal that closes."""


HELD = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are requests and no stop, and that end a process which does not handle them yet."""


def hold() -> None:
    """Let these signals wait; a process that is started now begins so, too."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)


def release() -> None:
    """Let these signals come, with those that wait."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def heeded() -> tuple[signal.Signals, ...]:
    """Return the stop signals to handle; not SIGHUP if the program was started to ignore it.

    ``nohup`` does so, and a handler would undo it: the program would end with its terminal.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return tuple(number for number in STOP_SIGNALS if number is not signal.SIGHUP)
    return STOP_SIGNALS
