"""The configuration of a broker: Kafka's names, defaults and ranges, and keys of our own.

Every key is a field of one frozen class per part, so its name, type, range and text are in one
place.  ``DescribeConfigs`` and the documents are made from these fields.  Our own keys begin with
``sharegroup.``.  A value arrives as text (from ``server.properties``, ``--set`` or the wire), is
checked once and then has its type.  `kafka_keys` has Kafka's keys that no class declares.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from sharegroup.broker.configuration.authorizer_settings import parse_authorizer
from sharegroup.broker.configuration.config_values import (
    entries,
    list_values,
    parse_part,
    parse_value,
)
from sharegroup.broker.configuration.consumer_group_config import (
    ConsumerGroupConfig,
    ModernGroupConfig,
)
from sharegroup.broker.configuration.group_config import (
    CoordinatorConfig,
    GroupConfig,
    ShareGroupConfig,
    check_groups,
)
from sharegroup.broker.configuration.listener_settings import base_names, listener_of
from sharegroup.broker.configuration.log_config import LogConfig
from sharegroup.broker.configuration.quota_config import QuotaConfig
from sharegroup.broker.configuration.sasl_config import SaslConfig
from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.broker.configuration.tls_config import TlsConfig
from sharegroup.broker.configuration.topic_config import TopicConfig
from sharegroup.broker.configuration.transaction_config import TransactionConfig
from sharegroup.errors import InvalidConfig

__all__ = [
    "Config",
    "ConsumerGroupConfig",
    "CoordinatorConfig",
    "GroupConfig",
    "LogConfig",
    "ModernGroupConfig",
    "QuotaConfig",
    "SaslConfig",
    "ServerConfig",
    "ShareGroupConfig",
    "TlsConfig",
    "TopicConfig",
    "TransactionConfig",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration that a broker is started with."""

    server: ServerConfig = field(default_factory=ServerConfig)
    log: LogConfig = field(default_factory=LogConfig)
    share_group: ShareGroupConfig = field(default_factory=ShareGroupConfig)
    consumer_group: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    modern_group: ModernGroupConfig = field(default_factory=ModernGroupConfig)
    coordinator: CoordinatorConfig = field(default_factory=CoordinatorConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    sasl: SaslConfig = field(default_factory=SaslConfig)
    given: Mapping[str, str] = field(default_factory=dict)
    """The text of every key that was given, also of keys that are not in the parts."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """The parts, each of which declares its keys."""
        return tuple(getattr(self, part.name) for part in _PARTS)

    @property
    def without_effect(self) -> list[str]:
        """The names of the keys that were given and change nothing here."""
        known = {entry.metadata["name"]: entry for part in self.parts for entry in entries(part)}
        listeners = self.listener_names
        return [
            name
            for name in self.given
            if not (name in known and known[name].metadata["effect"])
            and not (listener_entry(name) is not None and listener_of(name) in listeners)
        ]

    @property
    def listener_names(self) -> set[str]:
        """The names of all listeners, in lower case."""
        addresses = list_values(self.server.listeners)
        return {address.partition("://")[0].lower() for address in addresses}

    @property
    def unserved(self) -> dict[str, str]:
        """The values of Kafka's keys that were given and are in no part; they have no effect."""
        return _unserved(self.given)

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> Config:
        """Parse text values under Kafka's names; an unknown name is an error."""
        # `given` keeps the names that the operator wrote, because messages and DescribeConfigs show
        # it.
        given, values = dict(values), _with_older_names(values)
        parts: dict[str, Any] = {
            part.name: parse_part(
                part.type_, {name: values[name] for name in values if name in part.names}
            )
            for part in _PARTS
        }
        config = cls(**parts, given=given)
        check_unserved_keys(given, node_id=config.server.node_id)
        check_groups(config.share_group)
        check_groups(config.modern_group)
        parse_authorizer(config.server)
        return config


def _with_older_names(values: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values with ``broker.id`` and ``log.dir`` also under their newer names.

    Raises InvalidConfig if a node has two ids.
    """
    ids = [values[name] for name in ("node.id", "broker.id") if name in values]
    # -1 is Kafka's default of `broker.id`, which means that it is not set.
    if len({text.strip() for text in ids}) > 1 and ids[1].strip() != "-1":
        raise InvalidConfig(
            f"node.id={ids[0]} and broker.id={ids[1]} must be equal; remove broker.id"
        )
    newer = {
        new: values[old]
        for old, new in (("broker.id", "node.id"), ("log.dir", "log.dirs"))
        if old in values and new not in values and values[old].strip() != "-1"
    }
    return {**values, **newer} if newer else values


def _unserved(values: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in values.items()
        if name not in _SERVED and listener_entry(name) is None
    }


def listener_entry(name: str) -> Field[Any] | None:
    """Return the declaration of a served key with the prefix of a listener, under its full name.

    Returns None for all other names.
    """
    for base in base_names(name):
        found = _PER_LISTENER.get(base)
        if found is not None:
            entry = copy.copy(found)
            entry.metadata = MappingProxyType({**found.metadata, "name": name})
            return entry
    return None


def is_per_listener(name: str) -> bool:
    """Return whether the name is that of a served key which a listener may have its own value of.

    Names with the prefix of a listener are not.
    """
    return name in _PER_LISTENER


def _check_listener_keys(values: Mapping[str, str]) -> None:
    """Raise InvalidConfig for a served key of one listener that has an invalid value."""
    for name, text in values.items():
        entry = listener_entry(name)
        if entry is None:
            continue
        if not listener_of(name).islower():
            raise InvalidConfig(
                f"{name[:200]}: in the name of a key, a listener is in lower case: expected "
                f"{name[:200].lower()}"
            )
        parse_value(entry, text)


def check_unserved_keys(values: Mapping[str, str], *, node_id: int) -> None:
    """Check the values of keys that are in no part, and of keys of one listener.

    Raises InvalidConfig if one is refused.
    """
    _check_listener_keys(values)
    unserved = _unserved(values)
    if not unserved:
        return
    # Imported here, because most brokers, above all those of tests, have none of Kafka's other
    # keys, and reading the table takes milliseconds.
    from sharegroup.broker.configuration.kafka_keys import check_unserved

    check_unserved(unserved, _SERVED, node_id=node_id)


@dataclass(frozen=True, slots=True)
class _Part:
    """A field of `Config`, its class, and the names of its keys."""

    name: str
    type_: type
    names: frozenset[str]


_PARTS = tuple(
    _Part(entry.name, type_, frozenset(key.metadata["name"] for key in entries(type_)))
    for entry, type_ in zip(
        (entry for entry in fields(Config) if entry.name != "given"),
        (
            ServerConfig,
            LogConfig,
            ShareGroupConfig,
            ConsumerGroupConfig,
            ModernGroupConfig,
            CoordinatorConfig,
            TransactionConfig,
            TlsConfig,
            QuotaConfig,
            SaslConfig,
        ),
        strict=True,
    )
)

_SERVED: frozenset[str] = frozenset().union(*(part.names for part in _PARTS))
"""The names of all keys in the parts."""

_PER_LISTENER: Mapping[str, Field[Any]] = {
    entry.metadata["name"]: entry
    for part in _PARTS
    for entry in entries(part.type_)
    if entry.metadata["per_listener"]
}
"""The served keys that may have the prefix of a listener."""
