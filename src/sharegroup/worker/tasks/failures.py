"""The exceptions of tasks, and the error of one that failed finally, as its caller gets it.

    the task raises PaymentRefused  -->  result: "shop.tasks.PaymentRefused", text, traceback
    except PaymentRefused:          <--  a class made of PaymentRefused and TaskFailed

The class is looked up by the name that the store has, among the exceptions of Python and those of
the modules of tasks and of what these import.  Nothing is imported or unpickled for it, and its
``__init__`` is not called, because its arguments are not stored.  A program that can write to the
store can choose only among these classes.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from types import ModuleType
from typing import Any

from sharegroup.worker.records.outcomes import HandlerDecision
from sharegroup.worker.results.result import Result


class MaxRetriesExceededError(Exception):
    """A task called ``self.retry()`` without an exception, and was retried max_retries times."""

    __module__ = "sharegroup.worker.tasks"


class Ignore(Exception):
    """Raised by a task to end without a result; its record is done."""

    __module__ = "sharegroup.worker.tasks"


NOT_RAISED_AGAIN = (HandlerDecision, Ignore, TimeoutError, StopIteration, StopAsyncIteration)
"""Classes of which no error is made: a caller of ``AsyncResult.get`` gets a plain TaskFailed.

HandlerDecision and Ignore would decide about the record of the handler that calls it.  A
TimeoutError would look like the timeout of ``get``.  The others cannot be raised in a coroutine.
"""
OURS = (MaxRetriesExceededError,)
"""Classes of this package that a task can raise, and that its module need not import."""
CLASSES_MAX = 256
"""The number of classes made for errors that are kept; another one is made again when needed."""


class TaskFailed(Exception):
    """A task failed finally: the class and text of its last error, and its traceback."""

    __module__ = "sharegroup.worker.tasks"

    def __init__(self, task_id: str, facts: Result[Any]) -> None:
        # Not `super()`: in a class that is also the task's own that would be its `__init__`.
        Exception.__init__(
            self,
            f"task {task_id} failed after {facts.attempts} runs ({facts.reason}): "
            f"{facts.error_class}: {facts.error_text}",
        )
        self.error_class = facts.error_class
        self.error_text = facts.error_text
        self.reason = facts.reason
        self.traceback = facts.traceback
        self.attempts = facts.attempts

    def __str__(self) -> str:
        return str(self.args[0])  # That of the task's own class may need what is not stored.

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class TaskRevokedError(TaskFailed):
    """A task was revoked while it waited, or had expired before it ran."""


def failure(task_id: str, facts: Result[Any], modules: Iterable[str]) -> TaskFailed:
    """Return the error of a task; ``modules`` are the names of those with tasks."""
    own: Any = _own_class(facts.error_class, modules)
    if own is None:
        return TaskFailed(task_id, facts)
    try:
        return _made(own)(task_id, facts)
    except Exception:  # noqa: BLE001  A class of the application may refuse to be a base.
        return TaskFailed(task_id, facts)


def _own_class(name: str, modules: Iterable[str]) -> type[Exception] | None:
    """Return the exception class with this name, if one of these modules can have raised it."""
    namespaces = [vars(sys.modules[module]) for module in {*modules} if module in sys.modules]
    values = [value for namespace in namespaces for value in tuple(namespace.values())]
    # Where it is defined it may have another name: a package can show it as its own.
    own: object = next((value for value in (*values, *OURS) if _has_name(value, name)), None)
    if own is None:
        module_name, _, plain = name.rpartition(".")
        imported = {value.__name__ for value in values if isinstance(value, ModuleType)}
        above = accumulate(module_name.split("."), "{}.{}".format)
        if module_name == builtins.__name__ or not imported.isdisjoint(above):
            own = vars(sys.modules.get(module_name, builtins)).get(plain)
    if not isinstance(own, type) or not issubclass(own, Exception):
        return None
    return None if issubclass(own, NOT_RAISED_AGAIN) else own


def _has_name(value: object, name: str) -> bool:
    return isinstance(value, type) and f"{value.__module__}.{value.__qualname__}" == name


@lru_cache(maxsize=CLASSES_MAX)
def _made(own: Any) -> type[TaskFailed]:
    place = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    return type(own.__name__, (TaskFailed, own), place)
