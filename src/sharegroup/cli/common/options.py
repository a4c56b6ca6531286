"""Options that become one argument of a verb, and numbers within the limits of Kafka's protocol.

Without a limit here, a number that its field of a request cannot hold would end a verb with a
traceback instead of exit code 2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import click

Verb = Callable[..., Any]
Option = Callable[[Verb], Verb]
"""A decorator that adds an option, or several, to a verb."""

PARTITION_MAX = 2**31 - 1
REPLICAS_MAX = 2**15 - 1


def gathered(name: str, make: Callable[..., Any], *options: Option) -> Option:
    """Return a decorator that adds these options to a verb, which is called with ``name``.

    The argument ``name`` is what ``make`` returns for the values of the options.  The help of the
    verb has the options in their order here.
    """
    parameters = _parameters(options)

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def with_object(**values: Any) -> Any:
            own = {parameter: values.pop(parameter) for parameter in parameters}
            return verb(**{name: make(**own)}, **values)

        for option in reversed(options):
            option(with_object)
        return with_object

    return decorate


def _parameters(options: Iterable[Option]) -> list[str]:
    """Return the names by which click passes the values of these options to a verb."""

    def verb() -> None: ...

    for option in options:
        option(verb)
    # Where click remembers the options of a function until it becomes a command.
    declared: list[click.Parameter] = verb.__dict__["__click_params__"]
    return [option.name for option in declared if option.name and option.expose_value]


class FiniteRange(click.FloatRange):
    """A range of numbers without NaN, which compares with nothing, and infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; click.BadParameter if it is not finite or outside of the range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def is_number(text: str, most: int) -> bool:
    """Return whether the text is a whole number from 0 to ``most``."""
    digits = text.strip()
    # The length first, because `int` refuses thousands of digits.
    return digits.isdecimal() and len(digits) <= len(str(most)) and int(digits) <= most
