"""Reads broker settings from environment variables, named as for Apache Kafka's container images.

``KAFKA_NUM_PARTITIONS=3`` is the key ``num.partitions``: the name without its prefix, in small
letters, with ``.`` for an underscore, ``_`` for two of them and ``-`` for three. Bitnami's
``KAFKA_CFG_NUM_PARTITIONS`` is the same key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "KAFKA_"

OF_THE_SCRIPTS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "BASE_DIR CFG_PATH CLASSPATH CLUSTER_ID CONF_DIR DAEMON_GROUP DAEMON_USER DATA_DIR DEBUG "
        "EXTRA_ARGS GC_LOG_OPTS HEAP_OPTS HOME INIT_MAX_TIMEOUT JMX_HOSTNAME JMX_OPTS JMX_PORT "
        "JVM_PERFORMANCE_OPTS KRAFT_CLUSTER_ID LOG4J_CONFIG_FILE LOG4J_LOGGERS LOG4J_OPTS "
        "LOG4J_ROOT_LOGLEVEL MOUNTED_CONF_DIR OPTS RACK_AWARENESS TOOLS_LOG4J_LOGLEVEL "
        "VERSION VOLUME_DIR"
    ).split()
)
"""Variables for the scripts and the Java virtual machine of Kafka; they are no keys."""


OF_SERVICES = re.compile(r"KAFKA_(.*_)?(SERVICE_(HOST|PORT(_.+)?)|PORT_\d+_(TCP|UDP|SCTP)(_.+)?)")
"""Variables that Kubernetes makes for the port of a Service whose name begins with ``kafka``."""
SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
"""The value of such a Service's ``KAFKA_PORT``."""

BITNAMI = f"{PREFIX}CFG_"
"""What Bitnami's image has in front of the name of a key."""


def settings_from(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by key.

    As in Kafka's images, listeners that are not given listen on every address, on the ports of
    ``KAFKA_ADVERTISED_LISTENERS``.
    """
    settings = {key: environment[name] for key, name in variables_in(environment).items()}
    advertised = settings.get("advertised.listeners", "")
    if advertised and "listeners" not in settings:
        settings["listeners"] = re.sub(r"://[^:,]*:", "://0.0.0.0:", advertised)
    return settings


def variables_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the variables that are settings, by key."""
    return {_key(name): name for name, value in environment.items() if _is_setting(name, value)}


def _is_setting(name: str, value: str) -> bool:
    return (
        name.startswith(PREFIX)
        and name not in OF_THE_SCRIPTS
        and not OF_SERVICES.fullmatch(name)
        and not (name.endswith("PORT") and SERVICE_ADDRESS.match(value))
    )


def _key(variable: str) -> str:
    prefix = BITNAMI if variable.startswith(BITNAMI) else PREFIX
    name = variable.removeprefix(prefix).lower().replace("_", ".")
    return name.replace("...", "-").replace("..", "_")
