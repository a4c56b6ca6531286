"""Declares, parses, checks and shows configuration keys.

A key is a field of a `ConfigPart` (`config`); its name, range and text are the field's metadata.
This module converts text to typed values by that metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from enum import IntEnum
from functools import cache
from typing import Any, NoReturn, TypedDict, TypeVar, Unpack, dataclass_transform

from sharegroup.errors import InvalidConfig, InvalidTopic

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_NUMBER = {
    True: re.compile(r"[+-]?\d{1,19}", re.ASCII),
    False: re.compile(r"[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,3})?", re.ASCII),
}
"""The pattern of a number, by whether it is an integer."""

_BY_DURATION = re.compile(
    r"by_duration:(?i:\+?P(?=.)(?:(\d{1,9})D)?"
    r"(?:T(?=.)(?:(\d{1,12})H)?(?:(\d{1,12})M)?(?:(\d{1,12}(?:\.\d{1,9})?)S)?)?)",
    re.ASCII,
)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_REPLICA = re.compile(r"\d{1,10}:\d{1,10}", re.ASCII)

INHERITED = ("kind", "low", "high", "choices", "effect", "internal")
"""The options of a broker key that a setting of a topic or a group has, too."""

Part = TypeVar("Part")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class ConfigPart:
    """Base of the configuration classes: frozen data classes that only take keywords.

    Their methods are written here once.  `dataclass` would generate and compile them for each
    class, which takes a tenth of a broker's start.
    """

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: object) -> None:
        listed = {entry.name: entry.default for entry in entries(self)}
        if unknown := values.keys() - listed.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        self.__dict__.update(listed | values)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({values})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


class ConfigType(IntEnum):
    """The type of a value (DescribeConfigs' ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_KINDS = {
    "bool": ConfigType.BOOLEAN,
    "int": ConfigType.INT,
    "float": ConfigType.DOUBLE,
    "str": ConfigType.STRING,
    "tuple": ConfigType.LIST,
}
_LIMITS = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-INT_MAX - 1, INT_MAX),
    ConfigType.LONG: (-LONG_MAX - 1, LONG_MAX),
}


class KeyOptions(TypedDict, total=False):
    """What a key may have besides name, default and text."""

    kind: ConfigType | None
    """Kafka's name of the type, if the field's own type does not determine it."""
    low: float | None
    high: float | None
    """The bounds of a number, or of the length of a list."""
    choices: tuple[str, ...]
    synonym: str
    """The name of the broker key whose value is used while this one is not set."""
    fallbacks: tuple[tuple[str, int], ...]
    """Keys of the same part that are used then, with the units of this key in one of each."""
    effect: bool
    """False for a key that is accepted for compatibility and changes nothing on a single node."""
    internal: bool
    """Whether DescribeConfigs leaves the key out."""
    fixed: bool
    """Whether the key cannot be changed while the broker runs, although its part can."""
    live: bool
    """Whether the key can be changed while the broker runs, although its part cannot."""
    per_listener: bool
    """Whether the key may have the prefix of a listener (`listener_settings`).

    Unless it is ``fixed``, it can be changed for a listener while the broker runs.
    """


DEFAULT_OPTIONS: KeyOptions = {
    "kind": None,
    "low": None,
    "high": None,
    "choices": (),
    "synonym": "",
    "fallbacks": (),
    "effect": True,
    "internal": False,
    "fixed": False,
    "live": False,
    "per_listener": False,
}


def key(name: str, default: object, text: str, **options: Unpack[KeyOptions]) -> Any:
    """Declare a field of a configuration class."""
    metadata = {"name": name, "text": text, **DEFAULT_OPTIONS, **options}
    return field(default=default, metadata=metadata)


def inherited(
    part: type[ConfigPart],
    name: str,
    synonym: str,
    text: str = "",
    /,
    **different: Unpack[KeyOptions],
) -> Any:
    """Declare a setting of a topic or a group; None means that the broker's key is used.

    Type, range and choices are those of the key ``synonym`` of ``part``, except for ``different``.
    A setting that has no effect, like its key, may have the text of the key.
    """
    metadata = next(entry.metadata for entry in entries(part) if entry.metadata["name"] == synonym)
    options: Any = {option: metadata[option] for option in INHERITED} | different
    return key(name, None, text or metadata["text"], synonym=synonym, **options)


def kind_of(entry: Field[Any]) -> ConfigType:
    """Return Kafka's name of a key's type."""
    declared: ConfigType | None = entry.metadata["kind"]
    return _KINDS[_type_name(entry)] if declared is None else declared


def parse_part(part: type[Part], values: Mapping[str, str]) -> Part:
    """Parse text values into one configuration class; every name must be one of its keys."""
    by_name = {entry.metadata["name"]: entry for entry in entries(part)}
    typed = {}
    for name, text in values.items():
        if name not in by_name:
            raise InvalidConfig(f"unknown configuration {name}={text!r}")
        typed[by_name[name].name] = parse_value(by_name[name], text)
    return part(**typed)


def parse_value(entry: Field[Any], text: str) -> object:
    """Parse ``text``; raise InvalidConfig with key, value and what is allowed."""
    text = text.strip()
    match _type_name(entry):
        case "bool":
            return _parse_bool(entry, text)
        case "int" | "float":
            return _parse_number(entry, text)
        case "tuple":
            return _parse_list(entry, text)
    return _parse_text(entry, text)


def _parse_bool(entry: Field[Any], text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidConfig(f"{entry.metadata['name']} must be true or false, not {text!r}")
    return text.lower() == "true"


def _parse_number(entry: Field[Any], text: str) -> int | float:
    name, low, high = (entry.metadata[part] for part in ("name", "low", "high"))
    is_whole = _type_name(entry) == "int"
    if not _NUMBER[is_whole].fullmatch(text):
        raise InvalidConfig(f"{name} must be a {'whole ' * is_whole}number, not {text[:100]!r}")
    number = int(text) if is_whole else float(text)
    # The range from -1 to 9 has a gap, which `low` and `high` cannot express.
    if name == "compression.gzip.level" and number == 0:
        raise InvalidConfig(f"{name} must be between 1 and 9, or -1 for gzip's default, not 0")
    for lower, upper in ((low, high), _LIMITS.get(kind_of(entry), (None, None))):
        if (lower is not None and number < lower) or (upper is not None and number > upper):
            raise InvalidConfig(f"{name} must be {_range_text(lower, upper)}, not {number}")
    return number


def _parse_list(entry: Field[Any], text: str) -> tuple[str, ...]:
    name, low, high = (entry.metadata[part] for part in ("name", "low", "high"))
    values = list_values(text)
    for value in values:
        _check_choice(entry, value)
    if name.endswith(".replication.throttled.replicas") and values != ("*",):
        _check_replicas(name, values)
    if len(values) < (low or 0) or (high is not None and len(values) > high):
        raise InvalidConfig(f"{name} must have {_range_text(low, high)} entries, not {text!r}")
    return values


def _check_replicas(name: str, values: tuple[str, ...]) -> None:
    for value in values:
        if not _REPLICA.fullmatch(value):
            raise InvalidConfig(
                f"{name} must be * or a list of partition:broker, such as 0:1,1:1, not {value!r}"
            )


def _parse_text(entry: Field[Any], text: str) -> str:
    _check_choice(entry, text)
    match entry.metadata["name"]:
        case "share.auto.offset.reset":
            check_offset_reset(text)
        case "errors.deadletterqueue.topic.name":
            check_dead_letter_topic(text)
    return text


def _check_choice(entry: Field[Any], text: str) -> None:
    choices = entry.metadata["choices"]
    if choices and text not in choices:
        allowed = ", ".join(choice or "empty" for choice in choices)
        raise InvalidConfig(f"{entry.metadata['name']} must be one of {allowed}, not {text!r}")


def check_offset_reset(text: str) -> None:
    """Check for `latest`, `earliest` or `by_duration:` with an ISO-8601 duration."""
    if text not in ("latest", "earliest") and not _BY_DURATION.fullmatch(text):
        raise InvalidConfig(
            "share.auto.offset.reset must be latest, earliest or by_duration:PnDTnHnMn.nS, "
            f"not {text!r}"
        )


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic for a name that is not allowed."""
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidTopic(
            f"topic name {name!r} is not allowed: 1 to 249 of the characters a-z A-Z 0-9 . _ - "
            "and neither '.' nor '..'"
        )


def check_dead_letter_topic(text: str) -> None:
    """Check for the name of a topic that is not internal, or an empty text."""
    if not text:
        return
    try:
        check_topic_name(text)
    except InvalidTopic as error:
        raise InvalidConfig(f"errors.deadletterqueue.topic.name={text!r}: {error}") from error
    if text.startswith("__"):
        raise InvalidConfig(
            f"errors.deadletterqueue.topic.name must not start with '__', not {text!r}: "
            "those are internal topics"
        )


def list_values(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated list, without duplicates."""
    return tuple(dict.fromkeys(value.strip() for value in text.split(",") if value.strip()))


def reset_duration_ms(text: str) -> int:
    """Return how far back a ``by_duration`` reset reaches, in ms."""
    match = _BY_DURATION.fullmatch(text)
    assert match is not None, "checked when it was set"
    days, hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def entries(part: Any) -> tuple[Field[Any], ...]:
    """Return the keys of a configuration class or of its instance, in order of declaration."""
    return _entries_of(part if isinstance(part, type) else type(part))


@cache
def _entries_of(part: Any) -> tuple[Field[Any], ...]:
    listed = fields(part)
    assert all(entry.default is not MISSING for entry in listed)
    return listed


def value_text(value: object) -> str:
    """Return a typed value as Kafka's tools show it."""
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return str(value).upper().replace("E+", "E")  # As Java writes it: 1.5E308.
    return str(value).lower() if isinstance(value, bool) else str(value)


def default_text(entry: Field[Any]) -> str | None:
    """Return the default value of a key as Kafka's tools show it; None if it has none."""
    return None if entry.default is None else value_text(entry.default)


def shown(entry: Field[Any], text: str) -> str:
    """Return a value that was set as Kafka's tools show it: " +7 " is 7."""
    return value_text(parse_value(entry, text))


def _type_name(entry: Field[Any]) -> str:
    """Return the name of a key's type without ``| None``, which is the value of an unset key."""
    return str(entry.type).removesuffix(" | None").partition("[")[0]


def _range_text(low: float | None, high: float | None) -> str:
    if low is not None and low == high:
        return f"exactly {low}"
    if low is not None and high is not None:
        return f"between {low} and {high}"
    return f"at least {low}" if low is not None else f"at most {high}"
