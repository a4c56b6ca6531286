"""Redaction: functions that remove secrets from exception texts (``redact=``).

The exceptions of handlers are written to dead letters, retry topics, log lines and spans.  Their
texts may quote a password, a token or personal data.  The ``redact`` function of the handler is
called with each such text before the text is cut and written.  The function of the `App` is then
called with the result.  If one of them fails, the text is not written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

Redact = Callable[[str], str]

TEXT_CHARACTERS_MAX = 256 * 1024
"""Maximum length of a text passed to the functions; a longer text is cut first."""


class Redaction:
    """Calls redaction functions one after the other, and reports if one fails."""

    __slots__ = ("_functions", "_report")

    def __init__(self, functions: tuple[Redact, ...], report: Callable[[str], None]) -> None:
        self._functions = functions
        self._report = report

    def __call__(self, text: str) -> str | None:
        """The text without secrets; None if a function raised or did not return a str."""
        redacted: str | None = text
        for redact in self._functions:
            if redacted is None:
                break
            redacted = self._redacted(redact, redacted)
        return redacted

    def _redacted(self, redact: Redact, text: str) -> str | None:
        try:
            redacted: object = redact(text)
        except KeyboardInterrupt:
            raise
        # Any other: the write of a letter would end with it, and leave the record to nobody.
        except BaseException as error:  # noqa: BLE001  The application's function may do anything.
            # The text of this error may quote the secret, so only its class is reported.
            self._report(f"{type(error).__qualname__} was raised")
            return None
        if isinstance(redacted, str):
            return redacted
        if inspect.iscoroutine(redacted):
            redacted.close()
        self._report(f"{type(redacted).__qualname__} was returned; expected str")
        return None
