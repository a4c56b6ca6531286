"""``--command-config``: the client properties of Kafka's tools, as options of our clients.

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
    properties: Mapping[str, str], kind: type[ClientConfig], *, warn: Callable[[str], None]
) -> dict[str, Any]:
    """Return the properties as options of the client whose config is ``kind``.

    Raises click.UsageError for an unknown property of the connection's protection and for an
    invalid value.
    """
    known_properties: dict[str, str] = {}
    for name, text in properties.items():
        if kafka_properties.knows_property(name, kind):
            known_properties[name] = text
        elif name.startswith(PROTECTION):
            raise click.UsageError(
                f"--command-config: {name} is not supported by this client; remove it"
            )
        else:
            warn(f"--command-config: {name} is ignored")
    try:
        return kafka_properties.client_options(known_properties, kind)
    except InvalidConfig as error:
        raise click.UsageError(f"--command-config: {error}") from error
