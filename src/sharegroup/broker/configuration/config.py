"""The configuration of a broker: Kafka's names, defaults and ranges, and keys of our own.

Every key is a field of one frozen class per part, so its name, type, range and text are in one
place.  ``DescribeConfigs`` and the documents are made from these fields.  Our own keys begin with
``sharegroup.``.  A value arrives as text (from ``server.properties``, ``--set`` or the wire), is
checked once and then has its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sharegroup.broker.configuration.config_values import entries, parse_part
from sharegroup.broker.configuration.group_config import (
    ConsumerGroupConfig,
    CoordinatorConfig,
    GroupConfig,
    ShareGroupConfig,
    check_share_groups,
)
from sharegroup.broker.configuration.log_config import LogConfig, TopicConfig
from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.broker.configuration.transaction_config import TransactionConfig
from sharegroup.errors import InvalidConfig

__all__ = [
    "COMPATIBLE",
    "Config",
    "ConsumerGroupConfig",
    "CoordinatorConfig",
    "GroupConfig",
    "LogConfig",
    "ServerConfig",
    "ShareGroupConfig",
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
    coordinator: CoordinatorConfig = field(default_factory=CoordinatorConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> Config:
        """Parse text values under Kafka's names; an unknown name is an error."""
        parts: dict[str, Any] = {
            part.name: parse_part(
                part.type_, {name: values[name] for name in values if name in part.names}
            )
            for part in _PARTS
        }
        known = set().union(*(part.names for part in _PARTS))
        if unknown := sorted(set(values) - known - COMPATIBLE):
            raise InvalidConfig(f"unknown configuration {', '.join(unknown)}; see docs/config.md")
        config = cls(**parts)
        check_share_groups(config.share_group)
        return config


COMPATIBLE = frozenset(
    """process.roles broker.id controller.quorum.voters controller.quorum.bootstrap.servers
    controller.listener.names inter.broker.listener.name listener.security.protocol.map
    num.network.threads num.io.threads socket.send.buffer.bytes socket.receive.buffer.bytes
    num.recovery.threads.per.data.dir offsets.topic.replication.factor
    offsets.topic.compression.codec offsets.commit.timeout.ms offsets.load.buffer.size
    transaction.state.log.replication.factor transaction.state.log.min.isr
    default.replication.factor min.insync.replicas group.coordinator.threads
    group.coordinator.background.threads group.coordinator.append.linger.ms
    group.coordinator.cached.buffer.max.bytes
    log.cleaner.threads log.cleaner.io.buffer.size log.cleaner.io.buffer.load.factor
    log.cleaner.io.max.bytes.per.second log.index.interval.bytes log.index.size.max.bytes
    log.flush.interval.messages log.flush.interval.ms log.flush.scheduler.interval.ms
    log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms
    log.preallocate log.segment.delete.delay.ms log.roll.jitter.ms log.roll.jitter.hours
    unclean.leader.election.enable""".split()
)
"""Keys of a common ``server.properties`` that have no meaning on a single node; ignored."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A field of `Config`, its class, and the names of its keys."""

    name: str
    type_: type
    names: frozenset[str]


_PARTS = tuple(
    _Part(entry.name, type_, frozenset(key.metadata["name"] for key in entries(type_)))
    for entry, type_ in zip(
        fields(Config),
        (
            ServerConfig,
            LogConfig,
            ShareGroupConfig,
            ConsumerGroupConfig,
            CoordinatorConfig,
            TransactionConfig,
        ),
        strict=True,
    )
)
