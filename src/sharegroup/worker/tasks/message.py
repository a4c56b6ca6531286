"""What a task's record holds: its name and its arguments, as JSON.

    {"task": "shop.tasks.bill", "args": [7], "kwargs": {"currency": "EUR"}}

Values are checked before they are sent.  A value that JSON does not have, or would change silently,
is refused, and the error has the path to it.  The only exception is a tuple, which is sent as a
list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

DEPTH_MAX = 100
"""Lists and dicts in each other; a structure that contains itself has no end."""


class NotJson(TypeError):
    """A value of a task, or what it returned, has no form in JSON."""

    __module__ = "sharegroup.worker.tasks"


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """The value of a record: which task to run, and with what."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]


def message_for(task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskMessage:
    """Return the message of a call; raises NotJson."""
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise NotJson(f"{task}: args={args!r:.80}; expected a tuple or a list: args=(value,)")
    if not isinstance(kwargs, Mapping):
        raise NotJson(f"{task}: kwargs={kwargs!r:.80}; expected a dict by parameter")
    return TaskMessage(
        task,
        [plain(value, f"{task}: argument {place}") for place, value in enumerate(args, 1)],
        plain(kwargs, f"{task}: kwargs"),
    )


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return a value as JSON gives it back: tuples as lists; raises NotJson for what has no form.

    ``where`` names the value in the error, such as ``bill: argument 1``.
    """
    kind = type(value)
    if value is None or kind in (str, bool, int):
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise NotJson(f"{where} is {value}, and JSON has no such number")
    if depth > DEPTH_MAX:
        raise NotJson(f"{where}: more than {DEPTH_MAX} lists and dicts in each other")
    if kind in (list, tuple):
        return [plain(inner, f"{where}[{place}]", depth + 1) for place, inner in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise NotJson(
                    f"{where} has the key {key!r:.80} of type {type(key).__name__}, and keys of "
                    f"JSON are text; send str(key), or a list of pairs"
                )
        return {key: plain(inner, f"{where}[{key!r}]", depth + 1) for key, inner in value.items()}
    raise NotJson(
        f"{where} is of type {kind.__module__}.{kind.__qualname__}, and JSON has none; "
        f"{_instead(value)}"
    )


def _instead(value: Any) -> str:
    """Say what to send in place of a value that JSON does not have."""
    match value:
        case datetime() | date() | time():
            return "send value.isoformat(), and read it with fromisoformat in the task"
        case timedelta():
            return "send value.total_seconds()"
        case Decimal() | UUID():
            return f"send str(value), and make a {type(value).__name__} of it in the task"
        case Enum():
            return "send value.value"
        case set() | frozenset():
            return "send a list"
        case bytes() | bytearray() | memoryview():
            return "send text, such as base64, or the address of a file"
        case BaseException():
            return "send str(error)"
        case _ if hasattr(value, "pk"):
            return "send value.pk, and read the row in the task"
        case _ if hasattr(value, "__dataclass_fields__"):
            return "send dataclasses.asdict(value)"
        case _ if hasattr(value, "model_dump"):
            return "send value.model_dump(mode='json')"
        case str() | int() | float():
            return "send a plain str, int or float of it"
        case _:
            return "send text, numbers, lists and dicts, or an id of what the task reads by itself"
