"""The broker's configuration as it is now: what it was started with, under what was set since.

Defaults for topics and share groups can be changed while the broker runs, are kept in the
catalog, and win over what the broker is started with next time, as in Kafka.  Listening, limits
of connections and the internal topics are fixed from start to stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sharegroup.broker.config import (
    Config,
    ConsumerGroupConfig,
    CoordinatorConfig,
    LogConfig,
    ServerConfig,
    ShareGroupConfig,
)
from sharegroup.broker.config_values import entries, parse_value
from sharegroup.errors import InvalidConfig

DYNAMIC_PARTS = (LogConfig, ShareGroupConfig, ConsumerGroupConfig)


class LiveConfig:
    """See the module's text.  Ask it anew each time; the parts it hands out never change."""

    __slots__ = ("_current", "_own", "_started")

    def __init__(self, started: Config) -> None:
        self._started = started
        self._current = started
        self._own: Mapping[str, str] = {}

    @property
    def server(self) -> ServerConfig:
        return self._current.server

    @property
    def log(self) -> LogConfig:
        return self._current.log

    @property
    def share_group(self) -> ShareGroupConfig:
        return self._current.share_group

    @property
    def consumer_group(self) -> ConsumerGroupConfig:
        return self._current.consumer_group

    @property
    def coordinator(self) -> CoordinatorConfig:
        return self._current.coordinator

    @property
    def own(self) -> Mapping[str, str]:
        """What was set while a broker ran, by name."""
        return self._own

    @property
    def started(self) -> Config:
        """What this broker was started with."""
        return self._started

    def check(self, own: Mapping[str, str]) -> Config:
        """The configuration with ``own`` over it, or InvalidConfig."""
        return replace(
            self._started,
            log=_overlaid(self._started.log, own),
            share_group=_checked(_overlaid(self._started.share_group, own)),
            consumer_group=_overlaid(self._started.consumer_group, own),
        )

    def apply(self, own: Mapping[str, str]) -> None:
        """Let ``own`` hold from now on."""
        self._current = self.check(own)
        self._own = dict(own)


def is_dynamic(name: str) -> bool:
    """Whether the key can be changed while the broker runs."""
    return any(
        entry.metadata["name"] == name and not entry.metadata["fixed"]
        for part in DYNAMIC_PARTS
        for entry in entries(part)
    )


def check_dynamic(names: Mapping[str, str]) -> None:
    """Refuse keys that are fixed while the broker runs, and those that nobody knows."""
    fixed = sorted(name for name in names if not is_dynamic(name))
    if fixed:
        raise InvalidConfig(
            f"{', '.join(fixed)} cannot be changed while the broker runs; restart it with --set "
            "or a changed server.properties"
        )


def _overlaid(part: Any, own: Mapping[str, str]) -> Any:
    """A part of the configuration with the keys of ``own`` that it has."""
    changes = {
        entry.name: parse_value(entry, own[entry.metadata["name"]])
        for entry in entries(type(part))
        if entry.metadata["name"] in own
    }
    return replace(part, **changes)


def _checked(part: ShareGroupConfig) -> ShareGroupConfig:
    if part.session_timeout_ms <= part.heartbeat_interval_ms:
        raise InvalidConfig(
            f"group.share.session.timeout.ms={part.session_timeout_ms} must be larger than "
            f"group.share.heartbeat.interval.ms={part.heartbeat_interval_ms}"
        )
    return part
