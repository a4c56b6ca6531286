"""``--command-config`` and profiles: Kafka's client properties, as options of our clients.

One file serves many tools. A property that this client does not know, for example
``key.serializer``, is named on standard error and ignored. An unknown ``ssl.`` or ``sasl.``
property is refused, because ignoring it could leave a connection unprotected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from sharegroup.client.settings import kafka_properties
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import InvalidConfig

PROTECTION = ("ssl.", "sasl.", "security.")


def client_options(
    properties: Mapping[str, str],
    kind: type[ClientConfig],
    *,
    warn: Callable[[str], None],
    origin: str = "--command-config",
) -> dict[str, Any]:
    """Return the properties as options of the client whose config is ``kind``.

    ``origin`` is what named the properties, for messages.

    Raises click.UsageError for an unknown property of the connection's protection and for an
    invalid value.
    """
    known_properties: dict[str, str] = {}
    for name, text in properties.items():
        if kafka_properties.knows_property(name, kind):
            known_properties[name] = text
        elif name.startswith(PROTECTION):
            raise click.UsageError(f"{origin}: {name} is not supported by this client; remove it")
        else:
            warn(f"{origin}: {name} is ignored")
    try:
        return kafka_properties.client_options(known_properties, kind)
    except InvalidConfig as error:
        raise click.UsageError(f"{origin}: {error}") from error
