"""``--command-config`` and profiles: Kafka's client properties, as options of our clients.

One file serves many tools. A property that this client does not know, for example
``key.serializer``, is named on standard error and ignored. An unknown ``ssl.`` or ``sasl.``
property is refused, because ignoring it could leave a connection unprotected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.settings.kafka_properties import shared_options
from sharegroup.errors import InvalidConfig


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
    try:
        return shared_options(properties, kind, warn=warn, origin=origin)
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error
