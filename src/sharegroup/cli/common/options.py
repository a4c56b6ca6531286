"""Numbers in arguments and options, within the limits of Kafka's protocol.

Without a limit here, a number that its field of a request cannot hold would end a verb with a
traceback instead of exit code 2.
"""

from __future__ import annotations

import math
from typing import Any

import click

PARTITION_MAX = 2**31 - 1
REPLICAS_MAX = 2**15 - 1


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
