"""The levels of the broker's loggers: resources of type ``broker-loggers`` (KIP-412).

A level that is set lasts until the broker stops, as in Kafka.  Only sharegroup's own loggers are
listed.  In a program that embeds the broker, the others are not the broker's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sharegroup.broker.configuration.setting_changes import SettingChange
from sharegroup.errors import InvalidConfig, InvalidRequest
from sharegroup.protocol_enums import ConfigOperation

log = logging.getLogger(__name__)

TOP = "sharegroup"
"""The logger above all others of this package."""

LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "FATAL": logging.CRITICAL,
        "ERROR": logging.ERROR,
        "WARN": logging.WARNING,
        "INFO": logging.INFO,
        "DEBUG": logging.DEBUG,
        "TRACE": 5,
    }
)
"""Kafka's levels as Python's numbers."""


def logger_levels() -> dict[str, str]:
    """Return the effective level of each logger, by the logger's name."""
    return {name: _level_name(logger.getEffectiveLevel()) for name, logger in _loggers().items()}


def alter_levels(changes: Sequence[SettingChange], *, validate_only: bool) -> None:
    """Set and unset levels; raise an error and change nothing if one change is invalid."""
    loggers = _loggers()
    for change in changes:
        _check(change, loggers)
    if validate_only:
        return
    for change in changes:
        level = logging.NOTSET if change.value is None else LEVELS[change.value]
        is_unset = change.operation == ConfigOperation.DELETE
        loggers[change.name].setLevel(logging.NOTSET if is_unset else level)
        log.warning("event=log_level logger=%s level=%s", change.name, change.value or "unset")


def _check(change: SettingChange, loggers: Mapping[str, logging.Logger]) -> None:
    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise InvalidRequest(
            f"{change.name[:200]!r}: a log level can be set and deleted; operation "
            f"{change.operation} is not allowed"
        )
    if change.name not in loggers:
        raise InvalidConfig(
            f"there is no logger {change.name[:200]!r}; DescribeConfigs of the type broker-loggers "
            "lists them"
        )
    if change.operation == ConfigOperation.SET and change.value not in LEVELS:
        raise InvalidConfig(
            f"{change.name}: expected one of the levels {', '.join(LEVELS)}, not "
            f"{(change.value or '')[:100]!r}"
        )
    if change.operation == ConfigOperation.DELETE and change.name == TOP:
        raise InvalidRequest(f"the level of {TOP!r} can be set, but not deleted")


def _loggers() -> dict[str, logging.Logger]:
    """Return the loggers by name; Python also keeps placeholders for names in between."""
    known = logging.getLogger(TOP).manager.loggerDict
    below = {
        name: logger
        for name, logger in known.items()
        if isinstance(logger, logging.Logger) and name.startswith(f"{TOP}.")
    }
    return {TOP: logging.getLogger(TOP), **dict(sorted(below.items()))}


def _level_name(level: int) -> str:
    """Return Kafka's name of the level, or of the next less urgent one."""
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")
