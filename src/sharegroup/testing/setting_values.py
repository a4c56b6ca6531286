"""Values of Kafka's settings as texts, because tests write them as Python values, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

SettingValue: TypeAlias = str | int | float
"""A setting's value: a text as Kafka has it, a number, or True or False."""


def texts_of(settings: Mapping[str, SettingValue] | None) -> dict[str, str]:
    """Return the settings with their values as texts; raise TypeError for other values."""
    return {name: _text(name, value) for name, value in (settings or {}).items()}


def _text(name: str, value: SettingValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise TypeError(f"setting {name}={value!r}: expected a text, a number, True or False")
    return str(value)
