"""The class, message and traceback of an exception as limited text, for headers and log lines.

These functions never raise, whatever an application's exception does, and their work is limited,
however many exceptions are in its groups and causes.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from sharegroup.worker.redaction import TEXT_CHARACTERS_MAX, Redaction

CLASS_CHARACTERS_MAX = 300
LEAVES_MAX = 10_000
"""The number of exceptions of a group, with all groups in it, that are looked at."""
RELATED_MAX = 50
"""The traceback of an exception with more causes and exceptions in groups is its own alone."""
FRAMES_MAX = 200
"""The number of frames of one traceback, the latest ones."""


def class_name(error: BaseException) -> str:
    """Return the class with its module, as in ``builtins.TimeoutError``."""
    kind = type(error)
    try:
        return f"{kind.__module__}.{kind.__qualname__}"[:CLASS_CHARACTERS_MAX]
    except BaseException:  # noqa: BLE001  An application's class may raise anything.
        return "(the class has no name)"


def message_of(
    error: BaseException, characters_max: int, redaction: Redaction | None = None
) -> str:
    """Return the message of an exception, redacted and cut to ``characters_max``."""
    try:
        text = str.__str__(str(error))
    except BaseException as broken:  # noqa: BLE001  An application's ``__str__`` may raise anything.
        return f"(the exception text is not available: {type(broken).__qualname__} in __str__)"
    if redaction is not None:
        # Before the cut, because a redaction pattern does not match half a secret.
        text = _redacted(text[:TEXT_CHARACTERS_MAX], error, redaction)
    return text[:characters_max]


def trace_of(error: BaseException, redaction: Redaction | None = None) -> str:
    """Return the traceback with all causes, redacted; its last lines are next to the error."""
    try:
        if is_small(error):
            lines = traceback.format_exception(error, limit=-FRAMES_MAX)
        else:
            message = message_of(error, TEXT_CHARACTERS_MAX)
            lines = [
                f"(it has more than {RELATED_MAX} causes and exceptions in groups)\n",
                *traceback.format_tb(error.__traceback__, limit=-FRAMES_MAX),
                f"{class_name(error)}: {message}\n",
            ]
        text = "".join(lines)
    except BaseException as broken:  # noqa: BLE001  An application's exception may raise anything.
        return f"(the traceback is not available: {type(broken).__qualname__})\n"
    if redaction is not None:
        text = _redacted(text[-TEXT_CHARACTERS_MAX:], error, redaction)
    return text


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group and of the groups in it, up to `LEAVES_MAX` of all.

    The group itself is yielded if there are none among those.
    """
    waiting, count, has_leaves = [error], 0, False
    while waiting and count < LEAVES_MAX:
        inner = waiting.pop()
        count += 1
        if isinstance(inner, BaseExceptionGroup):
            # Reversed, because `pop` takes the last: the leaves come in the order of the group.
            waiting.extend(reversed(inner.exceptions[: LEAVES_MAX - count]))
        else:
            has_leaves = True
            yield inner
    if not has_leaves:
        yield error


def is_small(error: BaseException) -> bool:
    """Whether an exception has at most `RELATED_MAX` causes and exceptions in groups."""
    waiting, ids = [error], {id(error)}
    while waiting and len(ids) <= RELATED_MAX:
        inner = waiting.pop()
        related = [inner.__cause__, inner.__context__]
        if isinstance(inner, BaseExceptionGroup):
            related += inner.exceptions[: RELATED_MAX + 1]
        new = [other for other in related if other is not None and id(other) not in ids]
        ids.update(map(id, new))
        waiting += new
    return len(ids) <= RELATED_MAX


def _redacted(text: str, error: BaseException, redaction: Redaction) -> str:
    """Return the redacted text, or the class of the error if the redaction fails."""
    redacted = redaction(text)
    return class_name(error) if redacted is None else redacted
