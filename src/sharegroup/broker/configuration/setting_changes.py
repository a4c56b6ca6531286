"""What IncrementalAlterConfigs does to the settings of a topic, a group or the broker.

A change is applied to the text that is kept, and the outcome is checked as a whole before it
is written: a session timeout may only be wrong together with a heartbeat interval.  What was
allowed once may not be any more when the broker's bounds have moved since; `capped` says what
holds then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, replace
from enum import IntEnum
from typing import Any

from sharegroup.broker.configuration.config import GroupConfig, ShareGroupConfig, TopicConfig
from sharegroup.broker.configuration.config_values import (
    Kind,
    entries,
    kind_of,
    list_values,
    parse_part,
    value_text,
)
from sharegroup.broker.configuration.group_config import BOUNDED
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.configuration.settings import describe_topic
from sharegroup.errors import InvalidConfig, InvalidRequest


class Operation(IntEnum):
    """What may be done to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the request; ``value`` is None when a key is unset."""

    name: str
    operation: int
    value: str | None


def changed_topic(
    config: LiveConfig, own: Mapping[str, str], changes: tuple[Change, ...]
) -> dict[str, str]:
    """A topic's settings after ``changes``."""
    holds = {one.name: one.value or "" for one in describe_topic(config, own)}
    outcome = _changed(own, changes, _kinds(TopicConfig), holds)
    parse_part(TopicConfig, outcome)
    return outcome


def changed_group(
    config: LiveConfig, own: Mapping[str, str], changes: tuple[Change, ...]
) -> dict[str, str]:
    """A group's settings after ``changes``."""
    outcome = _changed(own, changes, _kinds(GroupConfig), {})
    check_group(outcome, config.share_group)
    return outcome


def changed_broker(
    config: LiveConfig, own: Mapping[str, str], changes: tuple[Change, ...]
) -> dict[str, str]:
    """The broker's settings after ``changes``; the caller checks them with those of its cluster."""
    parts = [getattr(config.started, part.name) for part in fields(config.started)]
    kinds: dict[str, Kind] = {}
    holds: dict[str, str] = {}
    for part in parts:
        kinds |= _kinds(type(part))
        for entry in entries(type(part)):
            holds[entry.metadata["name"]] = value_text(getattr(part, entry.name))
    return _changed(own, changes, kinds, {**holds, **config.default, **config.own})


def check_group(settings: Mapping[str, str], broker: ShareGroupConfig) -> None:
    """Own ranges, the broker's bounds, and that the session outlasts the heartbeat (KIP-1240)."""
    group = parse_part(GroupConfig, settings)
    for entry, low, high in _bounds(broker):
        value = getattr(group, entry.name)
        if value is not None and not low <= value <= high:
            raise InvalidConfig(
                f"{entry.metadata['name']} must be between {low} and {high} on this broker, "
                f"not {value}"
            )
    session_ms = group.session_timeout_ms or broker.session_timeout_ms
    heartbeat_ms = group.heartbeat_interval_ms or broker.heartbeat_interval_ms
    if session_ms <= heartbeat_ms:
        raise InvalidConfig(
            f"share.session.timeout.ms={session_ms} must be larger than "
            f"share.heartbeat.interval.ms={heartbeat_ms}"
        )


def capped(group: GroupConfig, broker: ShareGroupConfig) -> tuple[GroupConfig, dict[str, str]]:
    """The group's settings within the broker's bounds, and by key what was done to them."""
    held: dict[str, Any] = {}
    said: dict[str, str] = {}
    for entry, low, high in _bounds(broker):
        value = getattr(group, entry.name)
        if value is not None and not low <= value <= high:
            held[entry.name] = min(max(value, low), high)
            said[entry.metadata["name"]] = (
                f"{value} is outside of {low} to {high}; {held[entry.name]} holds"
            )
    return replace(group, **held), said


def _bounds(broker: ShareGroupConfig) -> list[tuple[Field[Any], int, int]]:
    by_name = {entry.name: entry for entry in entries(GroupConfig)}
    return [
        (by_name[field], getattr(broker, f"{field}_min"), getattr(broker, f"{field}_max"))
        for field in BOUNDED
    ]


def _kinds(part: type) -> dict[str, Kind]:
    return {entry.metadata["name"]: kind_of(entry) for entry in entries(part)}


def _changed(
    own: Mapping[str, str],
    changes: tuple[Change, ...],
    kinds: Mapping[str, Kind],
    holds: Mapping[str, str],
) -> dict[str, str]:
    """The settings after ``changes``; a list that nobody set begins as what ``holds``."""
    if len({change.name for change in changes}) < len(changes):
        raise InvalidRequest("a configuration key is named twice in one request")
    outcome = dict(own)
    for change in changes:
        if change.operation == Operation.DELETE:
            outcome.pop(change.name, None)
        elif change.operation not in tuple(Operation) or change.value is None:
            raise InvalidRequest(f"{change.name}: operation {change.operation} needs a value")
        elif change.operation == Operation.SET:
            outcome[change.name] = change.value
        else:
            before = own.get(change.name, holds.get(change.name, ""))
            outcome[change.name] = _list_changed(change, kinds.get(change.name), before)
    return outcome


def _list_changed(change: Change, kind: Kind | None, before: str) -> str:
    if kind is not Kind.LIST:
        raise InvalidConfig(f"{change.name} is not a list: it can only be set or deleted")
    values, named = list_values(before), list_values(change.value or "")
    if change.operation == Operation.APPEND:
        return ",".join(dict.fromkeys((*values, *named)))
    return ",".join(value for value in values if value not in named)
