"""``--command-config``: the client properties of Kafka's tools, as options of our clients.

One file serves many tools, so a property that this client does not know, a ``key.serializer``
say, is named on standard error and not used; but a ``ssl.`` or ``sasl.`` property that means
nothing here is refused: what protects a connection is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from sharegroup.client import kafka_properties
from sharegroup.client.config import ClientConfig
from sharegroup.errors import InvalidConfig

PROTECTION = ("ssl.", "sasl.", "security.")


def client_options(
    properties: Mapping[str, str], kind: type[ClientConfig], *, warn: Callable[[str], None]
) -> dict[str, Any]:
    """The properties as options of the client whose config is ``kind``."""
    known: dict[str, str] = {}
    for name, text in properties.items():
        if kafka_properties.knows_property(name, kind):
            known[name] = text
        elif name.startswith(PROTECTION):
            raise click.UsageError(f"--command-config: {name} means nothing here; remove it")
        else:
            warn(f"--command-config: {name} is not used")
    try:
        return kafka_properties.client_options(known, kind)
    except InvalidConfig as error:
        raise click.UsageError(f"--command-config: {error}") from error
