"""Handlers with exceptions that pickle cannot copy, found by their names in other processes."""

from __future__ import annotations

import io
import threading
import urllib.error
from email.message import Message
from typing import Any, NoReturn

from sharegroup.worker import Record, Reject, Release, RetryAfter, SomeFailed


class Refused(ConnectionError):
    """Pickle calls it with one argument."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port} refused")


class BadOrder(Reject):
    """A Reject that pickle cannot copy."""

    def __init__(self, field: str, *, reason: str) -> None:
        super().__init__(f"{field}: {reason}")


class Busy(RetryAfter):
    """A RetryAfter that pickle cannot copy."""

    def __init__(self, *, service: str) -> None:
        super().__init__(7, f"{service} is busy")


class Unreducible(LookupError):
    """It refuses to be pickled."""

    def __reduce__(self) -> NoReturn:
        raise SystemExit("in __reduce__")


class Changed(LookupError):
    """A copy of it is something else."""

    def __reduce__(self) -> Any:
        return str, ("not an exception",)


class Speechless(LookupError):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise GeneratorExit("in __str__")


class Locked(OSError):
    """It has what cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def http_error() -> Exception:
    return urllib.error.HTTPError("http://x", 503, "down", Message(), io.BytesIO(b""))


def local_error() -> Exception:
    class Local(KeyError):
        """No other process can find it."""

    return Local("here only")


def nested() -> BaseException:
    error: Exception = Refused("db", 5432)
    for _ in range(5_000):
        error = ExceptionGroup("outer", [error])
    return error


ERRORS: dict[str, Any] = {
    "http": http_error,
    "refused": lambda: Refused("db", 5432),
    "reject": lambda: BadOrder("total", reason="negative"),
    "retry after": lambda: Busy(service="payments"),
    "unreducible": lambda: Unreducible("no"),
    "changed": lambda: Changed("no"),
    "speechless": lambda: Speechless("no"),
    "local": local_error,
    "nested": nested,
    "group": lambda: ExceptionGroup("some", [Refused("db", 1), ValueError(2)]),
    "huge": lambda: ValueError("x" * 3_000_000),
    "exit": lambda: SystemExit(3),
    "generator exit": GeneratorExit,
    "stop iteration": lambda: StopIteration(1),
    "lock": lambda: Locked("in use"),
    "release": lambda: type("Later", (Release,), {})(delay=90),
}


def fails(text: str) -> None:
    """Raise the error of this name."""
    if text in ERRORS:
        error = ERRORS[text]()
        raise error


async def fails_async(text: str) -> None:
    """The same on the child's event loop."""
    fails(text)


def returns(text: str) -> object:
    """Return what cannot be pickled."""
    return (lambda: text) if text == "lambda" else threading.Lock()


def decides(text: str, record: Record) -> None:
    """Decide with what cannot be pickled."""
    record.reject(text)
    record.decision = BadOrder("total", reason=text)


def some_fail(texts: list[str]) -> None:
    """Fail for the records with an error."""
    failed = {index: ERRORS[text]() for index, text in enumerate(texts) if text in ERRORS}
    if failed:
        raise SomeFailed(failed)


def generates(texts: list[str]) -> Any:
    """Return a generator, as with a forgotten list()."""
    return (text for text in texts)


class Endless(Exception):
    """Pickling it does not end."""

    def __reduce__(self) -> NoReturn:
        while True:
            pass


def never_pickled(text: str) -> None:
    """Raise what cannot be sent."""
    raise Endless(text)
