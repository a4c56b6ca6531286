"""How a configuration key is declared, parsed, checked and shown.

A key is a field of a frozen class (`sharegroup.broker.config`); its name, range and text are
the field's metadata.  This module turns text into typed values by that metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, TypeVar

from sharegroup.errors import InvalidConfig

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_BY_DURATION = re.compile(
    r"by_duration:P(?=.)(?:(\d{1,9})D)?"
    r"(?:T(?=.)(?:(\d{1,12})H)?(?:(\d{1,12})M)?(?:(\d{1,12}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)

Part = TypeVar("Part")


def key(
    name: str,
    default: object,
    text: str,
    *,
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    synonym: str = "",
    effect: bool = True,
) -> Any:
    """A field of a configuration class.

    ``synonym`` names the broker key whose value holds while this one is not set.
    ``effect=False`` marks a key that is accepted for compatibility and changes nothing: on a
    single node, or because what it governs is not there yet.
    """
    metadata = {
        "name": name,
        "text": text,
        "low": low,
        "high": high,
        "choices": choices,
        "synonym": synonym,
        "effect": effect,
    }
    return field(default=default, metadata=metadata)


def parse_part(part: type[Part], values: Mapping[str, str]) -> Part:
    """One configuration class from text values; every name must be one of its keys."""
    by_name = {entry.metadata["name"]: entry for entry in entries(part)}
    typed = {}
    for name, text in values.items():
        if name not in by_name:
            raise InvalidConfig(f"unknown configuration {name}={text!r}")
        typed[by_name[name].name] = parse_value(by_name[name], text)
    return part(**typed)


def parse_value(entry: Field[Any], text: str) -> object:
    """The typed value of ``text``, or InvalidConfig that names key, value and what is allowed."""
    name, low, high = (entry.metadata[part] for part in ("name", "low", "high"))
    kind = str(entry.type)
    if kind.startswith("bool"):
        if text.lower() not in ("true", "false"):
            raise InvalidConfig(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"
    if kind.startswith("int"):
        try:
            number = int(text)
        except ValueError:
            raise InvalidConfig(f"{name} must be a whole number, not {text!r}") from None
        if (low is not None and number < low) or (high is not None and number > high):
            raise InvalidConfig(f"{name} must be {_range_text(low, high)}, not {number}")
        return number
    choices = entry.metadata["choices"]
    if choices and text not in choices:
        raise InvalidConfig(f"{name} must be one of {', '.join(choices)}, not {text!r}")
    if name == "share.auto.offset.reset":
        check_offset_reset(text)
    return text


def check_offset_reset(text: str) -> None:
    """`latest`, `earliest` or `by_duration:` with an ISO-8601 duration."""
    if text not in ("latest", "earliest") and not _BY_DURATION.fullmatch(text):
        raise InvalidConfig(
            "share.auto.offset.reset must be latest, earliest or by_duration:PnDTnHnMn.nS, "
            f"not {text!r}"
        )


def reset_duration_ms(text: str) -> int:
    """How far back a ``by_duration`` reset reaches."""
    match = _BY_DURATION.fullmatch(text)
    assert match is not None, "checked when it was set"
    days, hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def entries(part: Any) -> tuple[Field[Any], ...]:
    """The keys of a configuration class, in the order of their declaration."""
    listed = fields(part)
    assert all(entry.default is not MISSING for entry in listed)
    return listed


def value_text(value: object) -> str:
    """A typed value as Kafka's tools show it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _range_text(low: int | None, high: int | None) -> str:
    if low is not None and high is not None:
        return f"between {low} and {high}"
    return f"at least {low}" if low is not None else f"at most {high}"
