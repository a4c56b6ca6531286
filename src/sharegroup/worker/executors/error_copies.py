"""Copies of exceptions that pickle cannot copy, for handlers that run in other processes.

The policy of a handler depends on the class of its exception, and pickle cannot copy many: it calls
the class with ``args``, which need not be the arguments of its ``__init__``.  So the child process
sends the nearest class that both processes can import, the name of the real class, and the text.
The parent makes an exception of a subclass with this name.  ``isinstance`` and the texts of logs
and dead letters are then the same as for a handler in a thread.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from sharegroup.worker.decisions.messages import class_name, leaves_of, message_of
from sharegroup.worker.records.outcomes import Release, RetryAfter, SomeFailed

MESSAGE_CHARACTERS_MAX = 4_000
ERROR_BYTES_MAX = 1024 * 1024
"""A larger exception is sent as an `ErrorCopy`, whose text is cut."""


LEAVES_MAX = 100
"""The number of exceptions of a group that are sent."""


class RemoteError(Exception):
    """An exception of another process that could not be sent or read."""


@dataclass(frozen=True, slots=True)
class ErrorCopy:
    """What the parent needs to know of an exception that is not sent as it is."""

    kind: type[BaseException]
    """The nearest class of the exception that can be pickled by its name."""
    name: str
    """Its real class with the module."""
    text: str
    delay_seconds: float | None = None
    """Of a RetryAfter, and of a Release that has one."""
    leaves: tuple[Portable, ...] = ()
    """Of a group, the exceptions in it, without inner groups."""
    failed: Mapping[int, Portable] = field(default_factory=dict)
    """Of a SomeFailed."""


Portable = BaseException | ErrorCopy


def portable(thing: object) -> Portable | None:
    """Return an exception in a form that can be sent; None if the object is not an exception."""
    if not isinstance(thing, BaseException):
        return None
    if copied(thing, bytes_max=ERROR_BYTES_MAX) is not None:
        return thing
    # The nearest base, because `retry_on` may name any class above the one that cannot be sent.
    kind = next((base for base in type(thing).__mro__ if copied(base) is not None), BaseException)
    leaves: tuple[Portable, ...] = ()
    failed: dict[int, Portable] = {}
    if isinstance(thing, BaseExceptionGroup):
        leaves = tuple(
            form
            for leaf in islice(leaves_of(thing), LEAVES_MAX)
            if leaf is not thing and (form := portable(leaf)) is not None
        )
    elif isinstance(thing, SomeFailed):
        entries = thing.errors.items()
        failed = {index: form for index, error in entries if (form := portable(error)) is not None}
    return ErrorCopy(
        kind if issubclass(kind, BaseException) else BaseException,
        class_name(thing),
        message_of(thing, MESSAGE_CHARACTERS_MAX),
        _delay_of(thing),
        leaves,
        failed,
    )


def restored(form: Portable) -> BaseException:
    """Return the exception, or one that is judged as the copied one would be."""
    if not isinstance(form, ErrorCopy):
        return form
    if form.leaves:
        return BaseExceptionGroup(form.text, [restored(leaf) for leaf in form.leaves])
    if form.failed:
        return SomeFailed({index: restored(error) for index, error in form.failed.items()})
    for base in form.kind.__mro__:
        try:
            return _stand_in(base, form)
        except Exception:  # noqa: BLE001, S112  The application's class may refuse; its base does not.
            continue
    raise AssertionError("object is not an exception, and BaseException refuses nothing")


def copied(thing: object, *, bytes_max: int | None = None) -> bytes | None:
    """Return the pickled object; None if it cannot be pickled and unpickled unchanged."""
    try:
        pickled = pickle.dumps(thing)
        copy = pickle.loads(pickled)  # noqa: S301  Pickled a line above.  Many fail only here.
    except BaseException:  # noqa: BLE001  Application classes may raise anything.
        return None
    is_same = type(copy) is type(thing) and (bytes_max is None or len(pickled) <= bytes_max)
    return pickled if is_same else None


def _stand_in(base: type[BaseException], form: ErrorCopy) -> BaseException:
    module, _, name = form.name.rpartition(".")

    def ignore(self: BaseException, *_: object) -> None: ...

    def text(self: BaseException) -> str:  # noqa: ARG001  The method of a class made below.
        return form.text

    members = {"__module__": module, "__init__": ignore, "__str__": text}
    kind: type[BaseException] = type(name, (base,), members)
    error: BaseException = kind.__new__(kind, form.text)
    if isinstance(error, RetryAfter):
        error.delay_seconds = form.delay_seconds or 0.0
        error.delay, error.reason = error.delay_seconds, form.text
    elif isinstance(error, Release):
        error.delay_seconds = form.delay_seconds
    return error


def _delay_of(thing: BaseException) -> float | None:
    if not isinstance(thing, (RetryAfter, Release)):
        return None
    try:
        delay = thing.delay_seconds
        return None if delay is None else float(delay)
    except Exception:  # noqa: BLE001  A subclass need not call `RetryAfter.__init__`.
        return None
