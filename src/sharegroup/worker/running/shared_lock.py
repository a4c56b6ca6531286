"""The lock of the record that a process handles: the worker renews it, the process looks at it.

Two numbers in memory that both share.  The pipe between them is of no use for that, because who
handles a record doesn't read.

    worker    tell(deadline) --->  deadline       process
              asked()        <---  ask()          (`Record.renew`)

A number is written and read whole, and each has one writer but for the answer to `ask`.
"""

from __future__ import annotations

from multiprocessing.context import SpawnContext
from typing import Any

DEADLINE, ASKED = 0, 1


class SharedLock:
    """See the module's text; of one process, and of whatever it handles now."""

    __slots__ = ("_numbers",)

    def __init__(self, context: SpawnContext) -> None:
        self._numbers: Any = context.RawArray("d", 2)

    @property
    def deadline(self) -> float:
        """When the lock ends, in the seconds of the machine's clock; 0.0: nobody said yet."""
        deadline: float = self._numbers[DEADLINE]
        return deadline

    def begin(self) -> None:
        """Another record is handled: what was said of the last one is over."""
        self._numbers[DEADLINE] = self._numbers[ASKED] = 0.0

    def tell(self, deadline: float) -> None:
        """The lock ends then."""
        self._numbers[DEADLINE] = deadline

    def ask(self) -> None:
        """Let the lock begin anew."""
        self._numbers[ASKED] = 1.0

    def asked(self) -> bool:
        """Whether the process asked since this was called last."""
        is_asked: bool = self._numbers[ASKED] > 0
        self._numbers[ASKED] = 0.0
        return is_asked
