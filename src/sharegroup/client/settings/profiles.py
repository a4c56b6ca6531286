"""Profiles: named clusters in one configuration file, so that commands and Apps need no address.

The file is ``~/.config/sharegroup/config.toml`` (`$XDG_CONFIG_HOME` is respected), or the file
that ``SHAREGROUP_CONFIG`` names. A profile has client properties, as ``--command-config`` has::

    default = "local"

    [profiles.local]
    bootstrap.servers = "127.0.0.1:9092"

    [profiles.production]
    bootstrap.servers = "kafka-1:9093,kafka-2:9093"
    security.protocol = "SASL_SSL"

A profile that ``--profile`` names always applies. One that ``SHAREGROUP_PROFILE`` or the file's
``default`` names applies only if nothing else says which cluster to use: its passwords must not be
sent to an address that was given for another cluster.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharegroup.errors import InvalidConfig

CONFIG_VARIABLE = "SHAREGROUP_CONFIG"
PROFILE_VARIABLE = "SHAREGROUP_PROFILE"
BOOTSTRAP_PROPERTY = "bootstrap.servers"

TABLE, DEFAULT = "profiles", "default"


@dataclass(frozen=True, slots=True)
class Profile:
    """The client properties of one cluster; they may contain passwords, so repr hides them."""

    name: str
    path: Path
    properties: Mapping[str, str] = field(repr=False)

    def __str__(self) -> str:
        """Return the profile and its file, for messages."""
        return f"profile {self.name!r} in {self.path}"


def config_path() -> Path:
    """Return the path of the configuration file, which need not exist."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "sharegroup" / "config.toml"


def named_profile(name: str, origin: str) -> Profile:
    """Return the profile of this name; InvalidConfig if there is none.

    ``origin`` is the option or variable that names it, for the error.
    """
    path = config_path()
    document = _read(path)
    if document is None:
        raise InvalidConfig(
            f"{origin} {name!r}: the configuration file {path} does not exist; create it with a "
            f"table [{TABLE}.{name}] that contains {BOOTSTRAP_PROPERTY}"
        )
    profiles = _table(document, TABLE, path)
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise InvalidConfig(f"{origin} {name!r} is not in {path}; its profiles: {known}")
    return Profile(name, path, dict(_properties(_table(profiles, name, path), path)))


def implied_profile() -> Profile | None:
    """Return the profile of ``SHAREGROUP_PROFILE``, else the file's default; None for neither."""
    name = os.environ.get(PROFILE_VARIABLE)
    if name:
        return named_profile(name, PROFILE_VARIABLE)
    path = config_path()
    document = _read(path)
    if document is None:
        if os.environ.get(CONFIG_VARIABLE):
            raise InvalidConfig(f"{CONFIG_VARIABLE}: the file {path} does not exist")
        return None
    default = document.get(DEFAULT)
    if default is None:
        return None
    if not isinstance(default, str):
        raise InvalidConfig(f"{path}: {DEFAULT} = {default!r}; expected the name of a profile")
    return named_profile(default, DEFAULT)


def profile_names() -> list[str]:
    """Return the names of the profiles in the configuration file; none without a file."""
    path = config_path()
    return sorted(_table(_read(path) or {}, TABLE, path))


def _read(path: Path) -> Mapping[str, Any] | None:
    """Return the content of the file; None if it does not exist."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidConfig(f"the configuration file {path}: {error.strerror}") from error
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} is not a TOML file: {error}") from error


def _table(document: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, Mapping):
        raise InvalidConfig(f"{path}: {name} = {table!r}; expected a table")
    return table


def _properties(
    table: Mapping[str, Any], path: Path, prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield names and texts: TOML reads ``bootstrap.servers`` without quotes as nested tables."""
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _properties(value, path, f"{name}.")
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            # The value is not shown: it may be a password.
            kind = type(value).__name__
            raise InvalidConfig(f"{path}: {name} is a {kind}; expected a text or a number")
