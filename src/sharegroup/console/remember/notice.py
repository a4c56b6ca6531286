"""Says, once for each reason, that the console does not remember, and when it does again."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

Tell = Callable[[str | None], None]
"""Is told what the pages show as wrong; None: nothing."""


class Notice:
    """What is wrong with the memory, in the log and on the pages."""

    __slots__ = ("_reason", "_tell")

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._reason: str | None = None

    def wrong(self, reason: str, action: str) -> None:
        """Say what is wrong, and what to do."""
        if reason != self._reason:
            log.warning("event=console.not_remembering reason=%r do=%r", reason, action)
        self._reason = reason
        self._tell(f"{reason}; {action}")

    def right(self) -> None:
        """Say that nothing is wrong."""
        if self._reason is not None:
            log.info("event=console.remembering_again")
        self._reason = None
        self._tell(None)
