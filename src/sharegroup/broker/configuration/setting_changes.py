"""Applies the changes of IncrementalAlterConfigs to the settings of a topic, a group or the broker.

A change is applied to the stored text, and the result is checked as a whole before it is written.
For example, a session timeout may be valid alone but not with a heartbeat interval.  A stored value
may become invalid when the broker's bounds change; `capped` then returns the effective value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, replace
from typing import Any

from sharegroup.broker.configuration import consumer_group_config
from sharegroup.broker.configuration.client_metrics_config import ClientMetricsConfig
from sharegroup.broker.configuration.config import (
    GroupConfig,
    ModernGroupConfig,
    ShareGroupConfig,
    TopicConfig,
)
from sharegroup.broker.configuration.config_values import (
    ConfigType,
    default_text,
    entries,
    kind_of,
    list_values,
    parse_part,
    value_text,
)
from sharegroup.broker.configuration.group_config import BOUNDED
from sharegroup.broker.configuration.listener_settings import base_names
from sharegroup.broker.configuration.live_config import LiveConfig, kafka_entry
from sharegroup.broker.configuration.settings import describe_topic
from sharegroup.broker.configuration.tls_config import PEM_KEYS
from sharegroup.broker.configuration.topic_config import check_topic_config
from sharegroup.errors import InvalidConfig, InvalidRequest
from sharegroup.protocol_enums import ConfigOperation

VALUE_CHARACTERS_MAX = 4_096
"""The longest value of one setting that is set while the broker runs."""

PEM_CHARACTERS_MAX = 65_536
"""The longest value of a key of TLS that holds keys or certificates."""

TOPIC_CHARACTERS_MAX = 4_096
"""The longest total of one topic's values, including blanks around values, which are stored."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One entry of the request; ``value`` is None when a key is unset."""

    name: str
    operation: int
    value: str | None


def changed_topic(
    config: LiveConfig, own: Mapping[str, str], changes: tuple[SettingChange, ...]
) -> dict[str, str]:
    """Return a topic's settings after ``changes``."""
    effective = {setting.name: setting.value or "" for setting in describe_topic(config, own)}
    outcome = _changed(own, changes, _kinds(TopicConfig), effective)
    check_topic_config(parse_part(TopicConfig, outcome))
    check_topic(outcome)
    return outcome


def changed_group(
    config: LiveConfig, own: Mapping[str, str], changes: tuple[SettingChange, ...]
) -> dict[str, str]:
    """Return a group's settings after ``changes``."""
    # No setting of a group is a list, so there is none to append to that is inherited.
    outcome = _changed(own, changes, _kinds(GroupConfig), {})
    check_group(outcome, config.share_group, config.modern_group)
    return outcome


def changed_client_metrics(
    own: Mapping[str, str], changes: tuple[SettingChange, ...]
) -> dict[str, str]:
    """Return the settings of a client metrics resource after ``changes``."""
    return _changed(own, changes, _kinds(ClientMetricsConfig), {})


def changed_broker(
    config: LiveConfig, own: Mapping[str, str], changes: tuple[SettingChange, ...]
) -> dict[str, str]:
    """Return the broker's settings after ``changes``; the caller checks them with the cluster's."""
    kinds: dict[str, ConfigType] = {}
    effective: dict[str, str] = dict(config.started.unserved)
    for part in config.started.parts:
        kinds |= _kinds(type(part))
        for entry in entries(type(part)):
            effective[entry.metadata["name"]] = value_text(getattr(part, entry.name))
    for name in {change.name for change in changes} - kinds.keys():
        entry = kafka_entry(name)
        kinds[name] = kind_of(entry)
        inherited = [effective[base] for base in base_names(name) if base in effective]
        given = config.started.given.get(name, (*inherited, default_text(entry) or "")[0])
        effective.setdefault(name, given)
    return _changed(own, changes, kinds, {**effective, **config.default, **config.own})


def check_group(
    settings: Mapping[str, str], broker: ShareGroupConfig, modern: ModernGroupConfig
) -> None:
    """Check own ranges, the broker's bounds, and that the session outlasts the heartbeat
    (KIP-1240).
    """
    group = parse_part(GroupConfig, settings)
    for entry, low, high in _bounds(broker, modern):
        value = getattr(group, entry.name)
        if value is not None and not low <= value <= high:
            raise InvalidConfig(
                f"{entry.metadata['name']} must be between {low} and {high} on this broker, "
                f"not {value}"
            )
    for kind, session_ms, heartbeat_ms in (
        (
            "share",
            group.session_timeout_ms or broker.session_timeout_ms,
            group.heartbeat_interval_ms or broker.heartbeat_interval_ms,
        ),
        (
            "consumer",
            group.consumer_session_timeout_ms or modern.session_timeout_ms,
            group.consumer_heartbeat_interval_ms or modern.heartbeat_interval_ms,
        ),
    ):
        if session_ms <= heartbeat_ms:
            raise InvalidConfig(
                f"{kind}.session.timeout.ms={session_ms} must be larger than "
                f"{kind}.heartbeat.interval.ms={heartbeat_ms}"
            )


def capped(
    group: GroupConfig, broker: ShareGroupConfig, modern: ModernGroupConfig
) -> tuple[GroupConfig, dict[str, str]]:
    """Return the group's settings within the broker's bounds, and a message for each capped key."""
    capped_values: dict[str, Any] = {}
    messages: dict[str, str] = {}
    for entry, low, high in _bounds(broker, modern):
        value = getattr(group, entry.name)
        if value is not None and not low <= value <= high:
            capped_values[entry.name] = min(max(value, low), high)
            messages[entry.metadata["name"]] = (
                f"{value} is outside of {low} to {high}; {capped_values[entry.name]} is used"
            )
    return replace(group, **capped_values), messages


def _bounds(
    broker: ShareGroupConfig, modern: ModernGroupConfig
) -> list[tuple[Field[Any], int, int]]:
    """Return each bounded key of groups with the broker's least and greatest value."""
    by_name = {entry.name: entry for entry in entries(GroupConfig)}
    kinds = (("", broker, BOUNDED), ("consumer_", modern, consumer_group_config.BOUNDED))
    return [
        (by_name[prefix + field], getattr(part, f"{field}_min"), getattr(part, f"{field}_max"))
        for prefix, part, bounded in kinds
        for field in bounded
    ]


def _kinds(part: type) -> dict[str, ConfigType]:
    return {entry.metadata["name"]: kind_of(entry) for entry in entries(part)}


def is_pem(name: str) -> bool:
    """Return whether the key is one of a listener that holds keys or certificates in PEM."""
    return any(base in PEM_KEYS for base in base_names(name))


def check_length(name: str, value: str) -> None:
    """Raise InvalidConfig for a value that is too long to be kept."""
    characters_max = PEM_CHARACTERS_MAX if is_pem(name) else VALUE_CHARACTERS_MAX
    if len(value) > characters_max:
        raise InvalidConfig(
            f"{name[:100]}: a value may have at most {characters_max} characters, not {len(value)}"
        )


def check_topic(settings: Mapping[str, str]) -> None:
    """Raise InvalidConfig for settings of a topic that are too long together."""
    count = sum(map(len, settings.values()))
    if count > TOPIC_CHARACTERS_MAX:
        raise InvalidConfig(
            f"all values of one topic may have at most {TOPIC_CHARACTERS_MAX} characters, not "
            f"{count}"
        )


def _changed(
    own: Mapping[str, str],
    changes: tuple[SettingChange, ...],
    kinds: Mapping[str, ConfigType],
    holds: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings after ``changes``; a list that is not set begins as in ``holds``."""
    if len({change.name for change in changes}) < len(changes):
        raise InvalidRequest("a configuration key is named twice in one request")
    outcome = dict(own)
    for change in changes:
        check_length(change.name, change.value or "")
        if change.operation == ConfigOperation.DELETE:
            outcome.pop(change.name, None)
        elif change.operation not in tuple(ConfigOperation) or change.value is None:
            raise InvalidRequest(f"{change.name}: operation {change.operation} needs a value")
        elif change.operation == ConfigOperation.SET:
            outcome[change.name] = change.value
        else:
            # APPEND and SUBTRACT start from the effective list, also where the resource inherits
            # it.
            before = own.get(change.name, holds.get(change.name, ""))
            outcome[change.name] = _list_changed(change, kinds.get(change.name), before)
    return outcome


def _list_changed(change: SettingChange, kind: ConfigType | None, before: str) -> str:
    if kind is not ConfigType.LIST:
        raise InvalidConfig(f"{change.name} is not a list: it can only be set or deleted")
    values, named = list_values(before), list_values(change.value or "")
    if change.operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys((*values, *named)))
    return ",".join(value for value in values if value not in named)
