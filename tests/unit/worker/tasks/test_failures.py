"""The class of the error that a caller gets of a task that failed."""

from __future__ import annotations

import configparser
import json as renamed
import sys
from typing import Any

import pytest

from sharegroup.worker import Reject, Release
from sharegroup.worker.results.result import Result, ResultState
from sharegroup.worker.tasks import MaxRetriesExceededError, TaskFailed
from sharegroup.worker.tasks.failures import failure

assert configparser
assert Reject
assert Release
assert renamed.decoder


class PaymentRefused(Exception):
    def __init__(self, order: int, *, why: str) -> None:
        raise AssertionError("it is not called, because its arguments are not stored")

    def __str__(self) -> str:
        return self.why  # type: ignore[attr-defined,no-any-return]


class Odd(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("no subclasses")


class NoError:
    pass


def failed_with(name: str) -> TaskFailed:
    facts: Result[Any] = Result(
        id="a", state=ResultState.FAILED, error_class=name, error_text="why", reason="not-retried"
    )
    return failure("a", facts, [__name__, "not.imported"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("builtins.ValueError", ValueError),
        ("builtins.UnicodeDecodeError", UnicodeDecodeError),
        ("builtins.FileNotFoundError", OSError),
        (f"{__name__}.PaymentRefused", PaymentRefused),
        ("configparser.NoSectionError", configparser.Error),
        ("json.decoder.JSONDecodeError", renamed.JSONDecodeError),  # Of a package it imports.
        ("sharegroup.worker.tasks.MaxRetriesExceededError", MaxRetriesExceededError),
    ],
)
def test_error_is_of_the_class_that_the_task_raised(name: str, kind: type[Exception]) -> None:
    error = failed_with(name)
    assert isinstance(error, kind)
    assert (f"{type(error).__module__}.{type(error).__qualname__}", error.error_class) == (
        name,
        name,
    )
    assert str(error) == f"task a failed after 0 runs (not-retried): {name}: why"
    assert "why" in repr(error)
    assert type(failed_with(name)) is type(error)


@pytest.mark.parametrize(
    "name",
    [
        "builtins.SystemExit",
        "builtins.KeyboardInterrupt",
        "builtins.StopIteration",
        "builtins.TimeoutError",  # Would be taken for that of `get`.
        "builtins.ExceptionGroup",  # Cannot be made without the errors in it.
        "builtins.print",
        "sharegroup.worker.Reject",  # Would decide about the record of a handler that asks.
        "sharegroup.worker.Release",
        f"{__name__}.Odd",
        f"{__name__}.NoError",
        f"{__name__}.Missing",
        "subprocess.CalledProcessError",  # Imported in this process, not by the tasks.
        "xml.sax.SAXException",
        "",
        ".",
        "\0.\ud800",
    ],
)
def test_other_names_give_a_plain_error(name: str) -> None:
    assert "subprocess" in sys.modules
    before = {*sys.modules}
    assert type(failed_with(name)) is TaskFailed
    assert {*sys.modules} == before
