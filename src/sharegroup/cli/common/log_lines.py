"""The log of a process that a verb runs: lines on standard error, without what peers may inject."""

from __future__ import annotations

import copy
import logging
import sys
from typing import Any

from sharegroup.escaping import escaped, shortened

LINE = "%(asctime)s %(levelname)s %(name)s %(message)s"
VALUE_CHARACTERS_MAX = 500
"""Number of characters of one value in a line; a peer may choose a name of 32,767."""

LINE_CHARACTERS_MAX = 4_000
"""Number of characters of a line."""

TRACEBACK_CHARACTERS_MAX = 20_000
"""Number of characters of a traceback; its end is kept, which has the error."""


class SafeFormatter(logging.Formatter):
    """Escapes control characters, which peers may put into a message, and shortens long values.

    Tracebacks keep their lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the event with its traceback."""
        if isinstance(record.args, tuple) and record.args:
            record = copy.copy(record)  # Other handlers get the values as they are.
            record.args = tuple(map(_short, record.args or ()))
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  The name is logging's.
        """Return the line of the event, with escapes."""
        return shortened(escaped(super().formatMessage(record)), LINE_CHARACTERS_MAX)

    def formatException(  # noqa: N802  The name is logging's.
        self, ei: Any
    ) -> str:
        """Return the traceback, with escapes in each of its lines."""
        text = super().formatException(ei)
        if len(text) > TRACEBACK_CHARACTERS_MAX:
            text = f"...{text[-TRACEBACK_CHARACTERS_MAX:]}"
        return "\n".join(map(escaped, text.split("\n")))


def _short(value: Any) -> Any:
    return shortened(value, VALUE_CHARACTERS_MAX) if isinstance(value, str) else value


def start_logging(level: str) -> logging.Handler:
    """Log to standard error from this level on; return the handler."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter(LINE))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    return handler
