"""The broker's configuration as it is now: what it was started with, under what was set since.

Defaults for topics and share groups can be changed while the broker runs, are kept in the
catalog, and win over what the broker is started with next time, as in Kafka.  Listening, limits
of connections and the internal topics are fixed from start to stop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sharegroup.broker.configuration.config import (
    Config,
    ConsumerGroupConfig,
    CoordinatorConfig,
    LogConfig,
    ServerConfig,
    ShareGroupConfig,
)
from sharegroup.broker.configuration.config_values import entries, parse_value
from sharegroup.broker.configuration.group_config import check_share_groups
from sharegroup.errors import InvalidConfig

log = logging.getLogger(__name__)

DYNAMIC_PARTS = (LogConfig, ShareGroupConfig, ConsumerGroupConfig)


class LiveConfig:
    """See the module's text.  Ask it anew each time; the parts it hands out never change."""

    __slots__ = ("_current", "_default", "_own", "_started")

    def __init__(self, started: Config) -> None:
        self._started = started
        self._current = started
        self._own: Mapping[str, str] = {}
        self._default: Mapping[str, str] = {}

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
        """What was set of this broker while one ran, by name."""
        return self._own

    @property
    def default(self) -> Mapping[str, str]:
        """What was set of all brokers, and holds where this one has nothing of its own."""
        return self._default

    @property
    def started(self) -> Config:
        """What this broker was started with."""
        return self._started

    def check(self, own: Mapping[str, str], default: Mapping[str, str]) -> Config:
        """The configuration with both over what it was started with, or InvalidConfig."""
        over = {**default, **own}
        share_group = _overlaid(self._started.share_group, over)
        check_share_groups(share_group)
        return replace(
            self._started,
            log=_overlaid(self._started.log, over),
            share_group=share_group,
            consumer_group=_overlaid(self._started.consumer_group, over),
        )

    def apply(self, own: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Let both hold from now on."""
        self._current = self.check(own, default)
        self._own, self._default = dict(own), dict(default)

    def tenable(
        self, own: Mapping[str, str], default: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Both without what contradicts the values that the broker was started with this time.

        A broker that does not start is worse than one with a default, and says nothing of why.
        """
        kept_own: dict[str, str] = {}
        kept_default: dict[str, str] = {}
        for kept, settings in ((kept_default, default), (kept_own, own)):
            for name, value in settings.items():
                kept[name] = value
                try:
                    self.check(kept_own, kept_default)
                except InvalidConfig as error:
                    log.warning(
                        "event=stored_setting_left_out %s=%s error=%r", name, value, str(error)
                    )
                    del kept[name]
        return kept_own, kept_default


def is_dynamic(name: str) -> bool:
    """Whether the key can be changed while the broker runs."""
    return any(
        entry.metadata["name"] == name and not entry.metadata["fixed"]
        for part in DYNAMIC_PARTS
        for entry in entries(part)
    )


def check_dynamic(names: Iterable[str]) -> None:
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
