"""Every key of Apache Kafka's broker that is not a field of `Config`, and its fate here.

A file made for Kafka may contain any of its keys.  Keys that have no effect on this broker are
accepted, and their values are checked as Kafka checks them.  Keys that would promise something that
this broker cannot do are refused, unless the value is Kafka's default.  Names that nobody knows are
refused with the most similar known name.  `kafka_key_table` has the keys.

Most brokers are started without such keys, so this module is imported when it is first needed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, dataclass
from functools import cache
from typing import Any

from sharegroup.broker.configuration.config_values import (
    ConfigType,
    default_text,
    key,
    list_values,
    parse_value,
)
from sharegroup.broker.configuration.kafka_key_table import (
    ACCEPTED,
    NO_EFFECT,
    REFUSED,
    REMOVED,
    REPLACED,
)
from sharegroup.errors import InvalidConfig

_TYPES = {
    ConfigType.BOOLEAN: "bool",
    ConfigType.INT: "int",
    ConfigType.SHORT: "int",
    ConfigType.LONG: "int",
    ConfigType.DOUBLE: "float",
    ConfigType.LIST: "tuple",
}
"""The type of a value by Kafka's name of it; others are texts."""

_VENDOR_PREFIX = "confluent."
_LISTENER_PREFIX = "listener.name."
_PLUGIN_PREFIXES = ("rsm.config.", "rlmm.config.")


@dataclass(frozen=True, slots=True)
class KafkaKey:
    """A key of Kafka that this broker does not serve."""

    entry: Field[Any]
    """Its name, type, default and range, declared like a served key."""
    reason: str
    is_refused: bool
    """Whether only the default value and those in ``ACCEPTED`` are accepted."""
    when: str
    """When Kafka changes it: ``fixed``, ``cluster`` or ``broker``."""

    @property
    def name(self) -> str:
        """The key's name."""
        name: str = self.entry.metadata["name"]
        return name


@cache
def kafka_keys() -> Mapping[str, KafkaKey]:
    """Return the keys by name."""
    tables = ((NO_EFFECT, False), (REMOVED, False), (REPLACED, False), (REFUSED, True))
    return {
        found.name: found
        for table, is_refused in tables
        for reason, lines in table.items()
        for found in _read(lines, reason, is_refused=is_refused)
    }


def find_key(name: str) -> KafkaKey | None:
    """Return the key of this name, also of a listener's own variant; None if Kafka has none.

    ``listener.name.external.ssl.keystore.location`` is the key ``ssl.keystore.location`` for one
    listener, and ``listener.name.external.plain.sasl.jaas.config`` that for one mechanism.
    """
    kafka_key = kafka_keys().get(name)
    if kafka_key is None and name.startswith(_LISTENER_PREFIX):
        parts = name.split(".")[3:]
        for start in range(min(len(parts), 2)):
            kafka_key = kafka_key or kafka_keys().get(".".join(parts[start:]))
    return kafka_key


def replacements(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield those of ``names`` that something else replaced, each with a sentence about it."""
    for name in names:
        kafka_key = kafka_keys().get(name)
        if kafka_key is not None and kafka_key.reason in REPLACED:
            yield name, kafka_key.reason


def check_unserved(values: Mapping[str, str], served: Iterable[str], *, node_id: int) -> None:
    """Check values of keys that are not served; raise InvalidConfig for the first that is wrong.

    ``served`` are the names of all served keys, which an unknown name may be similar to.
    """
    for name, text in values.items():
        kafka_key = find_key(name)
        if kafka_key is not None:
            _check_value(kafka_key, name, text)
        # Plugins and a vendor's programs have keys with these prefixes, which nobody here knows.
        elif not name.startswith((_VENDOR_PREFIX, *_PLUGIN_PREFIXES)):
            raise InvalidConfig(_unknown(name, served))
    _check_quorum(values, node_id=node_id)


def _check_value(kafka_key: KafkaKey, name: str, text: str) -> None:
    """Raise InvalidConfig for a value of the wrong type or range, and for one that is refused."""
    value = parse_value(kafka_key.entry, text)
    if not kafka_key.is_refused or value == kafka_key.entry.default:
        return
    allowed = ACCEPTED.get(name, ())
    if ",".join(list_values(text)) in allowed or not text.strip():
        return
    accepted = allowed[0] if allowed else default_text(kafka_key.entry)
    remedy = f"Set it to {accepted}, or remove it" if accepted else "Remove it"
    raise InvalidConfig(
        f"{name}={text[:200]!r} is refused: {kafka_key.reason} {remedy}; see docs/config.md"
    )


def _check_quorum(values: Mapping[str, str], *, node_id: int) -> None:
    """Raise InvalidConfig if another controller is named: this broker is the only one."""
    for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        named = list_values(values.get(name, ""))
        ids = [voter.partition("@")[0] for voter in named if "@" in voter]
        if len(named) > 1 or any(voter_id != str(node_id) for voter_id in ids):
            raise InvalidConfig(
                f"{name}={values[name][:200]!r} is refused: this broker, node.id={node_id}, is its "
                "own and only controller; name only this broker, or remove the key"
            )


def _unknown(name: str, served: Iterable[str]) -> str:
    known = sorted({*served, *kafka_keys()})
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    meant = f"did you mean {nearest[0]}? " if nearest else ""
    return (
        f"unknown configuration key {name[:200]!r}: neither Apache Kafka 4.4 nor this broker has "
        f"it; {meant}docs/config.md lists all keys"
    )


def _read(lines: str, reason: str, *, is_refused: bool) -> Iterator[KafkaKey]:
    for line in lines.split("\n"):
        if not line.strip():
            continue
        name, kind_name, default, limits, when, *marks = line.split()
        kind = ConfigType[kind_name]
        low, high, choices = _limits(limits)
        entry: Field[Any] = key(
            name,
            None,
            reason,
            kind=kind,
            low=low,
            high=high,
            choices=choices,
            effect=False,
            internal="internal" in marks,
            fixed=when == "fixed",
        )
        # Types are texts, as in a class with postponed annotations.
        entry.name, entry.type = name, _TYPES.get(kind, "str")
        if default != "-":
            default = "" if default == '""' else default.replace("$", "org.apache.kafka.")
            entry.default = parse_value(entry, default)
        yield KafkaKey(entry, reason, is_refused, when)


def _limits(text: str) -> tuple[float | None, float | None, tuple[str, ...]]:
    """Return the bounds of a number and the allowed values."""
    low, dots, high = text.partition("..")
    if dots:
        return _number(low), _number(high), ()
    return None, None, () if text == "-" else tuple(text.split("|"))


def _number(text: str) -> float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)
