"""The broker's effective configuration: what it was started with, overlaid with later changes.

Defaults for topics and share groups can be changed while the broker runs.  Changes are stored in
the catalog, and take precedence over the configuration of the next start, as in Kafka.  Listeners,
connection limits and the internal topics are fixed while the broker runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import Field, replace
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from sharegroup.broker.configuration.config import (
    Config,
    ConsumerGroupConfig,
    CoordinatorConfig,
    LogConfig,
    ModernGroupConfig,
    ServerConfig,
    ShareGroupConfig,
    TlsConfig,
    check_unserved_keys,
    is_per_listener,
    listener_entry,
)
from sharegroup.broker.configuration.config_values import ConfigType, entries, kind_of, parse_value
from sharegroup.broker.configuration.group_config import check_groups
from sharegroup.broker.configuration.listener_settings import PREFIX, listener_of
from sharegroup.broker.configuration.transaction_config import TransactionConfig
from sharegroup.errors import InvalidConfig

if TYPE_CHECKING:
    # `_kafka_key` imports it at first use.
    from sharegroup.broker.configuration.kafka_keys import KafkaKey

log = logging.getLogger(__name__)

HIDDEN = "***"
"""What a log line has instead of a password."""

DYNAMIC_PARTS = (LogConfig, ShareGroupConfig, ConsumerGroupConfig, ModernGroupConfig)


class LiveConfig:
    """The effective configuration; read it anew each time, because changes replace its parts."""

    __slots__ = ("_current", "_default", "_on_applied", "_on_offer", "_own", "_started")

    def __init__(self, started: Config) -> None:
        self._started = started
        self._current = started
        self._own: Mapping[str, str] = {}
        self._default: Mapping[str, str] = {}
        self._on_applied: list[Callable[[], None]] = []
        self._on_offer: list[Callable[[Mapping[str, str], Collection[str]], None]] = []

    @property
    def server(self) -> ServerConfig:
        """The effective settings of listeners, of connections, and of the whole broker."""
        return self._current.server

    @property
    def log(self) -> LogConfig:
        """The effective defaults for topics, and the intervals of the jobs that clean logs."""
        return self._current.log

    @property
    def share_group(self) -> ShareGroupConfig:
        """The effective settings for share groups that do not set their own."""
        return self._current.share_group

    @property
    def consumer_group(self) -> ConsumerGroupConfig:
        """The effective settings of consumer groups and of their committed offsets."""
        return self._current.consumer_group

    @property
    def modern_group(self) -> ModernGroupConfig:
        """The effective settings for groups of the consumer protocol that do not set their own."""
        return self._current.modern_group

    @property
    def coordinator(self) -> CoordinatorConfig:
        """The effective settings of the two internal topics of groups."""
        return self._current.coordinator

    @property
    def transactions(self) -> TransactionConfig:
        """The effective settings of transactions and of their internal topic."""
        return self._current.transactions

    @property
    def tls(self) -> TlsConfig:
        """The effective settings of TLS for listeners that do not set their own."""
        return self._current.tls

    @property
    def texts(self) -> Mapping[str, str]:
        """The text of every key that was given at the start, overlaid with later changes."""
        return {**self._started.given, **self._default, **self._own}

    @property
    def own(self) -> Mapping[str, str]:
        """The values that were set for this broker while it ran, by name."""
        return self._own

    @property
    def default(self) -> Mapping[str, str]:
        """The values that were set for all brokers, used if this one has no own value."""
        return self._default

    @property
    def started(self) -> Config:
        """The configuration that this broker was started with."""
        return self._started

    def check(self, own: Mapping[str, str], default: Mapping[str, str]) -> Config:
        """Return the start configuration overlaid with both, or raise InvalidConfig."""
        overlay = {**default, **own}
        check_unserved_keys(overlay, node_id=self._started.server.node_id)
        share_group = _overlaid(self._started.share_group, overlay)
        check_groups(share_group)
        modern_group = _overlaid(self._started.modern_group, overlay)
        check_groups(modern_group)
        return replace(
            self._started,
            server=_overlaid(self._started.server, overlay),
            log=_overlaid(self._started.log, overlay),
            share_group=share_group,
            consumer_group=_overlaid(self._started.consumer_group, overlay),
            modern_group=modern_group,
        )

    def on_offer(self, callback: Callable[[Mapping[str, str], Collection[str]], None]) -> None:
        """Call ``callback`` before changed values are accepted.

        It gets the text of every key and the names of the changed ones, and raises InvalidConfig
        for values that cannot become effective, such as a file of keys that is not there.
        """
        self._on_offer.append(callback)

    def offer(
        self, own: Mapping[str, str], default: Mapping[str, str], changed: Collection[str]
    ) -> None:
        """Raise InvalidConfig if both sets of values cannot become effective.

        ``changed`` has the names of the keys that a request sets or unsets.
        """
        self.check(own, default)
        # Not for keys that are unset: those of a listener that is gone must be removable.
        self._check_listeners(name for name in changed if name in own or name in default)
        for callback in self._on_offer:
            callback({**self._started.given, **default, **own}, changed)

    def _check_listeners(self, names: Iterable[str]) -> None:
        """Raise InvalidConfig for keys of listeners that do not exist; anyone could invent them."""
        listener_names = self._started.listener_names
        for name in names:
            if name.startswith(PREFIX) and listener_of(name) not in listener_names:
                raise InvalidConfig(
                    f"{name[:200]}: the broker has no listener {listener_of(name)[:100].upper()}; "
                    f"its listeners are {', '.join(sorted(listener_names)).upper()}"
                )

    def apply(self, own: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Make both sets of values effective."""
        # Checked again: if this raises, nothing has changed.
        self._current = self.check(own, default)
        self._own, self._default = dict(own), dict(default)
        for callback in self._on_applied:
            callback()

    def on_applied(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever values were changed."""
        self._on_applied.append(callback)

    def tenable(
        self, own: Mapping[str, str], default: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return both without values that contradict the configuration of this start.

        A broker that uses a default and logs a warning is better than one that does not start.
        """
        kept_own: dict[str, str] = {}
        kept_default: dict[str, str] = {}
        # One by one, because two stored values may be valid alone and contradict each other;
        # defaults first, because values of this broker replace them.
        for kept, settings in ((kept_default, default), (kept_own, own)):
            for name, value in settings.items():
                kept[name] = value
                try:
                    self.check(kept_own, kept_default)
                except InvalidConfig as error:
                    log.warning(
                        "event=stored_setting_left_out %s=%s error=%r",
                        name,
                        without_secrets({name: value})[name],
                        str(error),
                    )
                    del kept[name]
        return kept_own, kept_default


class Change(Enum):
    """When a key of the broker can be changed, as Kafka's documentation names it."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


def change_of(name: str) -> Change:
    """Return when the key can be changed; raise InvalidConfig if nobody knows it.

    Keys that have no effect can be changed as in Kafka.
    """
    of_listener = listener_entry(name)
    if of_listener is not None:
        return Change.READ_ONLY if of_listener.metadata["fixed"] else Change.PER_BROKER
    return _part_changes().get(name) or _CHANGES[_kafka_key(name).when]


@cache
def _part_changes() -> Mapping[str, Change]:
    return {
        entry.metadata["name"]: _change(part, entry)
        for part in Config().parts
        for entry in entries(part)
    }


def _change(part: object, entry: Field[Any]) -> Change:
    if entry.metadata["live"]:
        return Change.CLUSTER_WIDE
    if entry.metadata["fixed"]:
        return Change.READ_ONLY
    if entry.metadata["per_listener"]:
        return Change.PER_BROKER
    return Change.CLUSTER_WIDE if type(part) in DYNAMIC_PARTS else Change.READ_ONLY


_CHANGES = {"fixed": Change.READ_ONLY, "broker": Change.PER_BROKER, "cluster": Change.CLUSTER_WIDE}


def kafka_entry(name: str) -> Field[Any]:
    """Return the declaration of a key that no part has under this name.

    It is a key of Kafka without an effect, or a key of one listener.  Raises InvalidConfig if it
    is unknown.
    """
    return listener_entry(name) or _kafka_key(name).entry


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings of the broker for a log line: passwords and keys are replaced by stars."""
    return {name: HIDDEN if _is_secret(name) else value for name, value in settings.items()}


def _is_secret(name: str) -> bool:
    """Return whether the value is a password; that of an unknown key may be one."""
    try:
        entry = _part_entries().get(name) or kafka_entry(name)
    except InvalidConfig:
        return True
    return kind_of(entry) is ConfigType.PASSWORD


@cache
def _part_entries() -> Mapping[str, Field[Any]]:
    return {entry.metadata["name"]: entry for part in Config().parts for entry in entries(part)}


def _kafka_key(name: str) -> KafkaKey:
    # Imported here, because these keys are rare and reading their table takes milliseconds.
    from sharegroup.broker.configuration.kafka_keys import find_key

    kafka_key = find_key(name)
    if kafka_key is None:
        raise InvalidConfig(
            f"{name[:200]!r} is no key of Apache Kafka 4.4 or of this broker; docs/config.md lists "
            "all keys"
        )
    return kafka_key


def check_dynamic(names: Iterable[str], *, of_all_brokers: bool = False) -> None:
    """Raise InvalidConfig for keys that are unknown or fixed while the broker runs.

    Keys that Kafka sets for a single broker only cannot be set for all brokers.
    """
    changes = {name: change_of(name) for name in names}
    fixed = sorted(name for name, change in changes.items() if change is Change.READ_ONLY)
    if fixed:
        raise InvalidConfig(
            f"{', '.join(fixed)} cannot be changed while the broker runs; restart it with --set "
            "or a changed server.properties"
        )
    shared = sorted(name for name in changes if is_per_listener(name))
    if shared:
        raise InvalidConfig(
            f"{', '.join(shared)} can only be changed for a single listener while the broker runs, "
            f"as in Kafka; name the listener: listener.name.<name in lower case>.{shared[0]}"
        )
    single = sorted(name for name, change in changes.items() if change is Change.PER_BROKER)
    if of_all_brokers and single:
        raise InvalidConfig(
            f"{', '.join(single)} can only be set for a single broker; name the broker's id "
            "instead of the default of all brokers"
        )


def _overlaid(part: Any, own: Mapping[str, str]) -> Any:
    """Return a part of the configuration with the values of ``own`` for its keys."""
    changes = {
        entry.name: parse_value(entry, own[entry.metadata["name"]])
        for entry in entries(type(part))
        if entry.metadata["name"] in own
    }
    return replace(part, **changes)
