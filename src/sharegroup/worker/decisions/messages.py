"""The class, message and traceback of an exception as limited text, for headers and log lines.

These functions never raise, whatever an application's exception does.
"""

from __future__ import annotations

import traceback

from sharegroup.worker.redaction import TEXT_CHARACTERS_MAX, Redaction


def class_name(error: BaseException) -> str:
    """Return the class with its module, as in ``builtins.TimeoutError``."""
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}"


def message_of(
    error: BaseException, characters_max: int, redaction: Redaction | None = None
) -> str:
    """Return the message of an exception, redacted and cut to ``characters_max``."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001  An application's ``__str__`` may raise anything.
        return f"(the exception text is not available: {type(broken).__qualname__} in __str__)"
    if redaction is not None:
        # Before the cut, because a redaction pattern does not match half a secret.
        text = _redacted(text[:TEXT_CHARACTERS_MAX], error, redaction)
    return text[:characters_max]


def trace_of(error: BaseException, redaction: Redaction | None = None) -> str:
    """Return the traceback with all causes, redacted; its last lines are next to the error."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as broken:  # noqa: BLE001  An application's exception may raise anything.
        return f"(the traceback is not available: {type(broken).__qualname__})\n"
    if redaction is not None:
        text = _redacted(text[-TEXT_CHARACTERS_MAX:], error, redaction)
    return text


def _redacted(text: str, error: BaseException, redaction: Redaction) -> str:
    """Return the redacted text, or the class of the error if the redaction fails."""
    redacted = redaction(text)
    return class_name(error) if redacted is None else redacted
