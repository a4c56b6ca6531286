"""Settings as administrators see them: of a topic, a group, or this broker.

A resource's own settings are text, kept in the catalog.  Every key is listed with the value
that holds and where it comes from: the resource's own, what stands in for it in the broker's
configuration, or the default.  How settings change is `setting_changes`' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, fields, replace
from enum import IntEnum
from typing import Any

from sharegroup.broker.configuration.config import GroupConfig, TopicConfig
from sharegroup.broker.configuration.config_values import Kind, entries, kind_of, shown, value_text
from sharegroup.broker.configuration.live_config import LiveConfig, is_dynamic
from sharegroup.errors import InvalidRequest

TOPIC, BROKER, GROUP = 2, 4, 32
"""Resource types (KIP-133, KIP-848); the others are not served."""


class Source(IntEnum):
    """Where a value comes from (DescribeConfigs' ConfigSource)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


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


def check_is_this_broker(name: str, *, node_id: int) -> None:
    """An empty name stands for what was set of all brokers of the cluster."""
    if name not in ("", str(node_id)):
        raise InvalidRequest(f"this is broker {node_id}, not {name!r}")


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
                yield _broker_setting(section, entry, config)


def of_all_brokers(found: Iterable[Setting]) -> Iterator[Setting]:
    """Only what was set of all brokers, as if there were nothing above and below."""
    for setting in found:
        for synonym in setting.synonyms:
            if synonym[2] is Source.DYNAMIC_DEFAULT_BROKER:
                yield replace(setting, value=synonym[1], source=synonym[2], synonyms=(synonym,))


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
        synonyms: Synonyms = ()
        if name in own:
            synonyms = ((name, shown(entry, own[name]), source),)
        if entry.metadata["synonym"] in broker:
            inherited = broker[entry.metadata["synonym"]]
            value, below = _inherited(broker, *inherited, config)
            synonyms += below
        else:
            value = value_text(entry.default)
            synonyms += ((name, value, Source.DEFAULT),)
        yield Setting(
            name=name,
            value=synonyms[0][1] if name in own else value,
            source=synonyms[0][2] if synonyms else Source.DEFAULT,
            kind=kind_of(entry),
            text=entry.metadata["text"],
            synonyms=synonyms,
        )


def _inherited(
    broker: Mapping[str, tuple[object, Field[Any]]],
    section: object,
    entry: Field[Any],
    config: LiveConfig,
) -> tuple[str, Synonyms]:
    """What holds by a key of the broker and those it falls back to; the first that is set wins.

    A fallback is in another unit: of ``log.retention.hours=1`` the value is 3600000.
    """
    found = _broker_setting(section, entry, config)
    value, synonyms = found.value, found.synonyms
    for name, units in entry.metadata["fallbacks"]:
        other = _broker_setting(*broker[name], config)
        synonyms += tuple(one for one in other.synonyms if one[2] is not Source.DEFAULT)
        if value is None and other.value is not None:
            value = str(max(-1, int(other.value) * units))
    assert value is not None, "the last fallback has a default"
    return value, synonyms


def _broker_setting(section: object, entry: Field[Any], config: LiveConfig) -> Setting:
    """``section`` is what the broker was started with; what was set since stands above it."""
    name, started = entry.metadata["name"], getattr(section, entry.name)
    synonyms: Synonyms = ()
    if entry.default is not None:
        synonyms = ((name, value_text(entry.default), Source.DEFAULT),)
    if started != entry.default:
        synonyms = ((name, value_text(started), Source.STATIC_BROKER), *synonyms)
    if name in config.default:
        synonyms = (
            (name, shown(entry, config.default[name]), Source.DYNAMIC_DEFAULT_BROKER),
            *synonyms,
        )
    if name in config.own:
        synonyms = ((name, shown(entry, config.own[name]), Source.DYNAMIC_BROKER), *synonyms)
    return Setting(
        name=name,
        value=synonyms[0][1] if synonyms else None,
        source=synonyms[0][2] if synonyms else Source.DEFAULT,
        kind=kind_of(entry),
        text=entry.metadata["text"],
        synonyms=synonyms,
        read_only=not is_dynamic(name),
    )
