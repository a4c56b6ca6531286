"""The settings of one listener: values for all listeners, replaced by its own.

``listener.name.external.ssl.client.auth`` is the key ``ssl.client.auth`` for the listener EXTERNAL
alone.  ``listener.name.external.plain.sasl.jaas.config`` is the key ``sasl.jaas.config`` for one
listener and one SASL mechanism.  The name of the listener, and that of the mechanism, is in lower
case.  A key of one listener has precedence over the key without the prefix, however each was set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from sharegroup.broker.configuration.config_values import entries, parse_value

PREFIX = "listener.name."
_NAME_AT = 2
"""The position of the listener's name in the parts of a key."""

Part = TypeVar("Part")


def listener_settings(part: Part, texts: Mapping[str, str], listener: str) -> Part:
    """Return a part of the configuration as it applies to one listener.

    ``part`` has the values for all listeners, and ``texts`` the text of every key that was given
    (`Config.given`, `LiveConfig.texts`).  Raises InvalidConfig for a value that is not valid.
    """
    prefix = f"{PREFIX}{listener.lower()}."
    own: dict[str, Any] = {
        entry.name: parse_value(entry, texts[prefix + entry.metadata["name"]])
        for entry in entries(part)
        if entry.metadata["per_listener"] and prefix + entry.metadata["name"] in texts
    }
    # A part is a dataclass, for which the type system has no name.
    return replace(part, **own) if own else part  # type: ignore[type-var]


def base_names(name: str) -> tuple[str, ...]:
    """Return the keys that ``name`` may be the variant of for one listener; empty if none.

    The second one leaves out a mechanism.
    """
    if not name.startswith(PREFIX):
        return ()
    parts = name.split(".")[_NAME_AT + 1 :]
    return tuple(".".join(parts[start:]) for start in range(min(len(parts), 2)))


def listener_of(name: str) -> str:
    """Return the listener in the name of a key with the prefix, in lower case."""
    assert name.startswith(PREFIX)
    return name.split(".")[_NAME_AT]
