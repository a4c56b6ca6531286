"""Log lines of ``sharegroup serve``: one line for each event, without control characters."""

from __future__ import annotations

import logging
from typing import Any

from sharegroup.escaping import escaped


class SafeFormatter(logging.Formatter):
    """Escapes control characters, which peers may put into a message; tracebacks keep lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  The name is logging's.
        """Return the line of the event, with escapes."""
        return escaped(super().formatMessage(record))

    def formatException(  # noqa: N802  The name is logging's.
        self, ei: Any
    ) -> str:
        """Return the traceback, with escapes in each of its lines."""
        return "\n".join(map(escaped, super().formatException(ei).split("\n")))
