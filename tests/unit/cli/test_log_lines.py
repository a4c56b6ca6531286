"""A line of ``sharegroup serve`` has bounded values and length, and no control characters."""

from __future__ import annotations

import io
import logging

import pytest

from sharegroup.cli.common.log_lines import (
    LINE_CHARACTERS_MAX,
    TRACEBACK_CHARACTERS_MAX,
    SafeFormatter,
)


def logged(message: str, *values: object, error: Exception | None = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(SafeFormatter("%(levelname)s %(message)s"))
    handler.handle(logging.LogRecord("x", 20, "m.py", 1, message, values, None))
    if error is not None:
        text = handler.formatter.formatException if handler.formatter else None
        assert text is not None
        return text((type(error), error, None))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "length"), [("x" * 32_767, 528), ("\x00" * 32_767, 528), ("\U000e0001" * 1_000, 528)]
)
def test_a_name_is_cut(name: str, length: int) -> None:
    text = logged("event=made group=%r", name)
    assert text.startswith("INFO event=made group='")
    assert text.endswith("...'\n")
    assert len(text) == length


def test_short_values_and_values_of_other_types_stay() -> None:
    assert logged("event=made group=%r count=%d at=%s", "a\nb", 7, None) == (
        "INFO event=made group='a\\nb' count=7 at=None\n"
    )


def test_the_values_of_a_line_are_bounded_together() -> None:
    text = logged("event=settings of=%s", {f"key{number}": "\x1b" * 90 for number in range(1_000)})
    assert len(text) == LINE_CHARACTERS_MAX + len("...\n")


def test_a_traceback_is_cut_and_keeps_the_error() -> None:
    text = logged("event=failed", error=ValueError("\x1b" * 5_000 + "y" * 30_000 + "end"))
    assert text.endswith("yend")
    assert len(text) == TRACEBACK_CHARACTERS_MAX + len("...")


def test_other_handlers_get_the_values_as_they_are() -> None:
    record = logging.LogRecord("x", 20, "m.py", 1, "event=made group=%r", ("x" * 9_000,), None)
    SafeFormatter("%(message)s").format(record)
    assert record.args == ("x" * 9_000,)
