"""Settings as administrators see and change them: of a topic, a group, or this broker.

A resource's own settings are text, kept in the catalog.  `describe` lists every key with the
value that holds and where it comes from; `changed` applies an IncrementalAlterConfigs and
checks the outcome as a whole before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from enum import IntEnum
from typing import Any

from sharegroup.broker.config import GroupConfig, ShareGroupConfig, TopicConfig
from sharegroup.broker.config_values import Kind, entries, kind_of, parse_part, value_text
from sharegroup.broker.live_config import LiveConfig, is_dynamic
from sharegroup.errors import InvalidConfig, InvalidRequest


class Source(IntEnum):
    """Where a value comes from (DescribeConfigs' ConfigSource)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


class Operation(IntEnum):
    """What IncrementalAlterConfigs may do to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Synonyms = tuple[tuple[str, str, Source], ...]
"""Name, value and source of each, the one that holds first."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a resource, what holds for it, and where that comes from."""

    name: str
    value: str | None
    """None while nobody set it and other keys say what holds."""
    source: Source
    kind: Kind
    text: str
    synonyms: Synonyms
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of an IncrementalAlterConfigs; ``value`` is None when a key is unset."""

    name: str
    operation: int
    value: str | None


def describe_topic(config: LiveConfig, own: Mapping[str, str]) -> Iterator[Setting]:
    yield from _describe(TopicConfig, config, own, Source.DYNAMIC_TOPIC)


def describe_group(config: LiveConfig, own: Mapping[str, str]) -> Iterator[Setting]:
    yield from _describe(GroupConfig, config, own, Source.DYNAMIC_GROUP)


def describe_broker(config: LiveConfig) -> Iterator[Setting]:
    """Every key of the broker; those that are fixed while it runs are read-only."""
    started = config.started
    for part in fields(started):
        section = getattr(started, part.name)
        for entry in entries(type(section)):
            if not entry.metadata["internal"]:
                yield _broker_setting(section, entry, config.own)


def changed(own: Mapping[str, str], changes: tuple[Change, ...]) -> dict[str, str]:
    """The settings after ``changes``; which keys and values are allowed is for the next check."""
    if len({change.name for change in changes}) < len(changes):
        raise InvalidRequest("a configuration key is named twice in one request")
    outcome = dict(own)
    for change in changes:
        if change.operation == Operation.SET and change.value is not None:
            outcome[change.name] = change.value
        elif change.operation == Operation.DELETE:
            outcome.pop(change.name, None)
        elif change.operation in (Operation.APPEND, Operation.SUBTRACT):
            raise InvalidConfig(f"{change.name} is not a list: it can only be set or deleted")
        else:
            raise InvalidRequest(f"{change.name}: operation {change.operation} needs a value")
    return outcome


def check_topic(settings: Mapping[str, str]) -> None:
    parse_part(TopicConfig, settings)


def check_group(settings: Mapping[str, str], broker: ShareGroupConfig) -> None:
    """Own ranges, the broker's bounds, and that the session outlasts the heartbeat (KIP-1240)."""
    group = parse_part(GroupConfig, settings)
    for field in (
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "lock_ms",
        "delivery_count_max",
        "in_flight_max",
        "assignment_interval_ms",
    ):
        value = getattr(group, field)
        low, high = getattr(broker, f"{field}_min"), getattr(broker, f"{field}_max")
        if value is not None and not low <= value <= high:
            name = _entry(GroupConfig, field).metadata["name"]
            raise InvalidConfig(
                f"{name} must be between {low} and {high} on this broker, not {value}"
            )
    session_ms = group.session_timeout_ms or broker.session_timeout_ms
    heartbeat_ms = group.heartbeat_interval_ms or broker.heartbeat_interval_ms
    if session_ms <= heartbeat_ms:
        raise InvalidConfig(
            f"share.session.timeout.ms={session_ms} must be larger than "
            f"share.heartbeat.interval.ms={heartbeat_ms}"
        )


def _describe(
    part: type, config: LiveConfig, own: Mapping[str, str], source: Source
) -> Iterator[Setting]:
    started = config.started
    broker = {
        entry.metadata["name"]: (section, entry)
        for section in (started.log, started.share_group)
        for entry in entries(type(section))
    }
    for entry in entries(part):
        name = entry.metadata["name"]
        if entry.metadata["internal"]:
            continue
        synonyms: Synonyms = ((name, own[name], source),) if name in own else ()
        if entry.metadata["synonym"] in broker:
            inherited = broker[entry.metadata["synonym"]]
            value, below = _inherited(broker, *inherited, config.own)
            synonyms += below
        else:
            value = value_text(entry.default)
            synonyms += ((name, value, Source.DEFAULT),)
        yield Setting(
            name=name,
            value=own.get(name, value),
            source=synonyms[0][2],
            kind=kind_of(entry),
            text=entry.metadata["text"],
            synonyms=synonyms,
        )


def _inherited(
    broker: Mapping[str, tuple[object, Field[Any]]],
    section: object,
    entry: Field[Any],
    own: Mapping[str, str],
) -> tuple[str, Synonyms]:
    """What holds by a key of the broker and those it falls back to; the first that is set wins.

    A fallback is in another unit: of ``log.retention.hours=1`` the value is 3600000.
    """
    found = _broker_setting(section, entry, own)
    value, synonyms = found.value, found.synonyms
    for name, units in entry.metadata["fallbacks"]:
        other = _broker_setting(*broker[name], own)
        synonyms += other.synonyms
        if value is None and other.value is not None:
            value = str(max(-1, int(other.value) * units))
    assert value is not None, "the last fallback has a default"
    return value, synonyms


def _broker_setting(section: object, entry: Field[Any], own: Mapping[str, str]) -> Setting:
    """``section`` is what the broker was started with, ``own`` what was set since."""
    name, started = entry.metadata["name"], getattr(section, entry.name)
    synonyms: Synonyms = ()
    if entry.default is not None:
        synonyms = ((name, value_text(entry.default), Source.DEFAULT),)
    if started != entry.default:
        synonyms = ((name, value_text(started), Source.STATIC_BROKER), *synonyms)
    if name in own:
        synonyms = ((name, own[name], Source.DYNAMIC_BROKER), *synonyms)
    return Setting(
        name=name,
        value=synonyms[0][1] if synonyms else None,
        source=synonyms[0][2] if synonyms else Source.DEFAULT,
        kind=kind_of(entry),
        text=entry.metadata["text"],
        synonyms=synonyms,
        read_only=not is_dynamic(name),
    )


def _entry(part: type, field: str) -> Field[Any]:
    return next(entry for entry in entries(part) if entry.name == field)
