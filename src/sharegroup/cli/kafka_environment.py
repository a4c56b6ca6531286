"""Reads broker settings from environment variables, named as for Apache Kafka's container images.

``KAFKA_NUM_PARTITIONS=3`` is the key ``num.partitions``: the name without its prefix, in small
letters, with ``.`` for an underscore, ``_`` for two of them and ``-`` for three.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "KAFKA_"

OF_THE_SCRIPTS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "CFG_PATH DEBUG GC_LOG_OPTS HEAP_OPTS HOME JMX_HOSTNAME JMX_OPTS JMX_PORT "
        "JVM_PERFORMANCE_OPTS LOG4J_LOGGERS LOG4J_OPTS LOG4J_ROOT_LOGLEVEL OPTS "
        "TOOLS_LOG4J_LOGLEVEL VERSION"
    ).split()
)
"""Variables for the scripts and the Java virtual machine of Kafka; they are no keys."""


def settings_from(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by key.

    As in Kafka's images, listeners that are not given listen on every address, on the ports of
    ``KAFKA_ADVERTISED_LISTENERS``.
    """
    settings = {
        _key(name): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in OF_THE_SCRIPTS
    }
    advertised = settings.get("advertised.listeners", "")
    if advertised and "listeners" not in settings:
        settings["listeners"] = re.sub(r"://[^:,]*:", "://0.0.0.0:", advertised)
    return settings


def _key(variable: str) -> str:
    name = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return name.replace("...", "-").replace("..", "_")
