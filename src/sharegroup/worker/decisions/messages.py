"""What an exception is and says, for headers and log lines: never too long, never an exception."""

from __future__ import annotations


def class_name(error: BaseException) -> str:
    """The class with its module, as in ``builtins.TimeoutError``."""
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}"


def message_of(error: BaseException, characters_max: int) -> str:
    """Its text, cut; an application's own ``__str__`` may do anything."""
    try:
        return str(error)[:characters_max]
    except Exception as broken:  # noqa: BLE001  It may do anything.
        return f"(its text can't be had: {type(broken).__qualname__} in __str__)"
