"""The settings of a topic, a group or this broker, as administrators see them.

A resource's own settings are text, stored in the catalog.  Every key is listed with its effective
value and the source of it: the resource's own setting, the broker's corresponding key, or the
default.  `setting_changes` changes settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, replace
from typing import Any

from sharegroup.broker.configuration.client_metrics_config import ClientMetricsConfig
from sharegroup.broker.configuration.config import GroupConfig, TopicConfig, listener_entry
from sharegroup.broker.configuration.config_values import (
    ConfigType,
    default_text,
    entries,
    kind_of,
    shown,
    value_text,
)
from sharegroup.broker.configuration.live_config import Change, LiveConfig, change_of
from sharegroup.errors import InvalidRequest
from sharegroup.protocol_enums import ConfigSource

Synonyms = tuple[tuple[str, str, ConfigSource], ...]
"""Name, value and source of each synonym, the effective one first."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a resource, its effective value, and the source of that."""

    name: str
    value: str | None
    """None if the key is not set and its fallback keys determine the value."""
    source: ConfigSource
    kind: ConfigType
    text: str
    synonyms: Synonyms
    read_only: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is a password, which is not shown."""
        return self.kind is ConfigType.PASSWORD


def check_is_this_broker(name: str, *, node_id: int) -> None:
    """Raise InvalidRequest if the name is another broker's; an empty name means all brokers."""
    if name not in ("", str(node_id)):
        raise InvalidRequest(f"this is broker {node_id}, not {name!r}")


def describe_topic(config: LiveConfig, own: Mapping[str, str]) -> Iterator[Setting]:
    """Yield the settings of a topic with these own settings."""
    yield from _describe(TopicConfig, config, own, ConfigSource.TOPIC)


def describe_group(config: LiveConfig, own: Mapping[str, str]) -> Iterator[Setting]:
    """Yield the settings of a group with these own settings."""
    yield from _describe(GroupConfig, config, own, ConfigSource.GROUP)


def describe_client_metrics(own: Mapping[str, str]) -> Iterator[Setting]:
    """Yield the settings of a client metrics resource, which need not exist."""
    for entry in entries(ClientMetricsConfig):
        name = entry.metadata["name"]
        synonyms: Synonyms = ()
        if name in own:
            synonyms = ((name, shown(entry, own[name]), ConfigSource.CLIENT_METRICS),)
        yield Setting(
            name=name,
            value=synonyms[0][1] if synonyms else value_text(entry.default),
            source=synonyms[0][2] if synonyms else ConfigSource.DEFAULT,
            kind=kind_of(entry),
            text=entry.metadata["text"],
            synonyms=synonyms,
        )


def describe_loggers(levels: Mapping[str, str]) -> Iterator[Setting]:
    """Yield the level of each logger as a setting."""
    for name, level in levels.items():
        yield Setting(
            name=name,
            value=level,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            kind=ConfigType.STRING,
            text="The level of this logger, or of the next one above that has a level.",
            synonyms=(),
        )


def describe_broker(config: LiveConfig) -> Iterator[Setting]:
    """Yield every key of the broker, also those of Kafka that have no effect here.

    Keys that are fixed while the broker runs are read-only.  Keys of one listener are listed if
    they were given.
    """
    # Imported here, because most brokers are never asked and reading the table takes milliseconds.
    from sharegroup.broker.configuration.kafka_keys import kafka_keys

    served: set[str] = set()
    for section in config.started.parts:
        for entry in entries(section):
            served.add(entry.metadata["name"])
            if not entry.metadata["internal"]:
                yield _broker_setting(section, entry, config)
    for name, found in kafka_keys().items():
        if not found.entry.metadata["internal"] and name not in served:
            yield _setting(found.entry, default_text(found.entry), config)
    for name in sorted(config.texts):
        of_listener = listener_entry(name)
        if of_listener is not None:
            yield _setting(of_listener, default_text(of_listener), config)


def of_all_brokers(found: Iterable[Setting]) -> Iterator[Setting]:
    """Yield only the cluster-wide defaults, without the values above and below them."""
    for setting in found:
        for synonym in setting.synonyms:
            if synonym[2] is ConfigSource.DYNAMIC_DEFAULT_BROKER:
                yield replace(setting, value=synonym[1], source=synonym[2], synonyms=(synonym,))


def _describe(
    part: type, config: LiveConfig, own: Mapping[str, str], source: ConfigSource
) -> Iterator[Setting]:
    """Yield the settings of a topic or group, with the broker's keys that they fall back to."""
    started = config.started
    broker = {
        entry.metadata["name"]: (section, entry)
        for section in (started.log, started.share_group, started.modern_group)
        for entry in entries(type(section))
    }
    for entry in entries(part):
        name = entry.metadata["name"]
        if entry.metadata["internal"]:
            continue
        synonyms: Synonyms = ()
        if name in own:
            synonyms = ((name, shown(entry, own[name]), source),)
        if entry.metadata["synonym"] in broker:
            inherited = broker[entry.metadata["synonym"]]
            value, below = _inherited(broker, *inherited, config)
            synonyms += below
        else:
            value = value_text(entry.default)
            # As in Kafka, the default is a synonym of a group's key alone.
            if source is ConfigSource.GROUP:
                synonyms += ((name, value, ConfigSource.DEFAULT),)
        yield Setting(
            name=name,
            value=synonyms[0][1] if name in own else value,
            source=synonyms[0][2] if synonyms else ConfigSource.DEFAULT,
            kind=kind_of(entry),
            text=_text(entry),
            synonyms=synonyms,
        )


def _inherited(
    broker: Mapping[str, tuple[object, Field[Any]]],
    section: object,
    entry: Field[Any],
    config: LiveConfig,
) -> tuple[str, Synonyms]:
    """Return the effective value of a broker key and its fallbacks; the first that is set wins.

    A fallback may have another unit: for ``log.retention.hours=1`` the value is 3600000.
    """
    setting = _broker_setting(section, entry, config)
    value, synonyms = setting.value, setting.synonyms
    for name, units in entry.metadata["fallbacks"]:
        fallback = _broker_setting(*broker[name], config)
        synonyms += tuple(
            synonym for synonym in fallback.synonyms if synonym[2] is not ConfigSource.DEFAULT
        )
        if value is None and fallback.value is not None:
            # -1 means no limit in every unit.
            value = str(max(-1, int(fallback.value) * units))
    assert value is not None, "the last fallback has a default"
    return value, synonyms


def _broker_setting(section: object, entry: Field[Any], config: LiveConfig) -> Setting:
    """Return the setting of a broker key; ``section`` has the values of the start."""
    started = getattr(section, entry.name)
    return _setting(entry, None if started is None else value_text(started), config)


def _setting(entry: Field[Any], started: str | None, config: LiveConfig) -> Setting:
    """Return the setting of a broker key.

    ``started`` is its value at the start; values that were set since take precedence.
    """
    name, default = entry.metadata["name"], default_text(entry)
    given = config.started.given
    synonyms: Synonyms = ()
    if default is not None:
        synonyms = ((name, default, ConfigSource.DEFAULT),)
    if name in given:
        started = shown(entry, given[name])
    # A key that was given by its older name has another value than the default without being in
    # `given` (`log.dir`).
    if name in given or started != default:
        synonyms = ((name, started or "", ConfigSource.STATIC_BROKER), *synonyms)
    if name in config.default:
        synonyms = (
            (name, shown(entry, config.default[name]), ConfigSource.DYNAMIC_DEFAULT_BROKER),
            *synonyms,
        )
    if name in config.own:
        synonyms = ((name, shown(entry, config.own[name]), ConfigSource.DYNAMIC_BROKER), *synonyms)
    return Setting(
        name=name,
        value=synonyms[0][1] if synonyms else None,
        source=synonyms[0][2] if synonyms else ConfigSource.DEFAULT,
        kind=kind_of(entry),
        text=_text(entry),
        synonyms=synonyms,
        read_only=change_of(name) is Change.READ_ONLY,
    )


def _text(entry: Field[Any]) -> str:
    """Return the documentation of a key; that of a key without an effect says so."""
    text: str = entry.metadata["text"]
    return text if entry.metadata["effect"] else f"{text} (Accepted, no effect.)"
