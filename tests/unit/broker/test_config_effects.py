"""Each configuration key that declares an effect is read by the broker.

The test looks for a read of an attribute with the name of the key's field, in the modules of
`broker` outside `configuration`.  It does not know of which object the attribute is, so a field
whose name another class has, too, may count as read although it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker import configuration
from sharegroup.broker.configuration import consumer_group_config, group_config
from sharegroup.broker.configuration.config import Config, GroupConfig, TopicConfig
from sharegroup.broker.configuration.config_values import entries

CONFIGURATION = Path(str(configuration.__file__)).parent
BROKER = CONFIGURATION.parent
PARTS = (*(type(part) for part in Config().parts), TopicConfig, GroupConfig)

READ_IN_CONFIGURATION = {
    "ServerConfig.listeners": "listeners.py",
    "ServerConfig.advertised_listeners": "listeners.py",
    "ServerConfig.security_protocols": "listeners.py",
    "ServerConfig.controller_listeners": "listeners.py",
    "ServerConfig.log_dirs": "server_config.py",
    "ServerConfig.metrics_host": "listeners.py",
    "ServerConfig.authorizer_class": "authorizer_settings.py",
    "LogConfig.segment_hours": "log_config.py",
    "LogConfig.retention_minutes": "log_config.py",
    "LogConfig.retention_hours": "log_config.py",
}
"""The modules of `configuration` that read a field and give the broker what follows from it."""

OLDER_NAMES = {"ServerConfig.log_dir": "log.dir"}
"""The keys whose values `config.py` takes for the newer key, if that is not given."""

READ_BY_NAME = {
    "ShareGroupConfig": group_config.BOUNDED,
    "ModernGroupConfig": consumer_group_config.BOUNDED,
}
"""The fields with bounds beside them: `setting_changes.capped` reads these by their names."""


@cache
def attributes_read(path: Path) -> frozenset[str]:
    """The names of all attributes that a module, or the modules of a folder, read."""
    modules = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return frozenset(
        node.attr
        for module in modules
        if path in (CONFIGURATION, module) or not module.is_relative_to(CONFIGURATION)
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


def fields_with_effect() -> Iterator[Any]:
    for part in PARTS:
        bounded = READ_BY_NAME.get(part.__name__, ())
        by_name = {f"{field}_{bound}" for field in bounded for bound in ("min", "max")}
        for entry in entries(part):
            if entry.metadata["effect"] and entry.name not in by_name:
                yield pytest.param(f"{part.__name__}.{entry.name}", id=entry.metadata["name"])


@pytest.mark.parametrize("name", list(fields_with_effect()))
def test_key_with_an_effect_is_read(name: str) -> None:
    is_read = name.partition(".")[2] in attributes_read(BROKER)
    is_exception = name in READ_IN_CONFIGURATION or name in OLDER_NAMES
    assert is_read != is_exception, "read nowhere, or no exception any more"


@pytest.mark.parametrize("name", READ_IN_CONFIGURATION)
def test_field_that_only_the_configuration_reads_is_read_there(name: str) -> None:
    module = CONFIGURATION / READ_IN_CONFIGURATION[name]
    assert name.partition(".")[2] in attributes_read(module)


@pytest.mark.parametrize("key", OLDER_NAMES.values())
def test_value_of_an_older_key_is_that_of_the_newer_one(key: str) -> None:
    assert Config.parse({key: "/older"}).server.log_dirs == "/older"
