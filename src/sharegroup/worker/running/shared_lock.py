"""Shares the lock deadline of a record between the worker and the process that handles it.

The worker renews the lock; the process reads the deadline and may ask for a renewal.  Both use
two numbers in shared memory.  The pipe between them cannot be used for this, because the process
does not read it while it runs a handler.

    worker    tell(deadline) --->  deadline       process
              asked()        <---  ask()          (`Record.renew`)

Each number is written and read atomically.  Only one side writes it, except that the worker
resets the request of `ask`.
"""

from __future__ import annotations

from multiprocessing.context import SpawnContext
from typing import Any

DEADLINE, ASKED = 0, 1


class SharedLock:
    """The lock deadline of the record that one handler process handles now, in shared memory."""

    __slots__ = ("_numbers",)

    def __init__(self, context: SpawnContext) -> None:
        self._numbers: Any = context.RawArray("d", 2)

    @property
    def deadline(self) -> float:
        """The lock deadline in seconds of the monotonic clock; 0.0 until the worker has set it."""
        deadline: float = self._numbers[DEADLINE]
        return deadline

    def begin(self) -> None:
        """Reset both numbers, because another record is handled."""
        self._numbers[DEADLINE] = self._numbers[ASKED] = 0.0

    def tell(self, deadline: float) -> None:
        """Set the lock deadline; called by the worker."""
        self._numbers[DEADLINE] = deadline

    def ask(self) -> None:
        """Ask the worker to renew the lock; called by the process."""
        self._numbers[ASKED] = 1.0

    def asked(self) -> bool:
        """Whether the process has asked for a renewal since the last call."""
        is_asked: bool = self._numbers[ASKED] > 0
        self._numbers[ASKED] = 0.0
        return is_asked
