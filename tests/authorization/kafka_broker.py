"""An Apache Kafka node with an authorizer and a user for each case of the matrix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.kafka_peer import KafkaPeer, free_ports

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LONG_MS = "600000"


def guarded_settings(passwords: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a broker with an authorizer and these users of SASL/PLAIN.

    The super user is a client without a login.  Sessions of members outlast a test.
    """
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{JAAS} {users};",
        "group.consumer.max.session.timeout.ms": LONG_MS,
        "group.consumer.session.timeout.ms": LONG_MS,
        "group.share.max.session.timeout.ms": LONG_MS,
        "group.share.session.timeout.ms": LONG_MS,
    }


class AuthorizingKafka(KafkaPeer):
    """One node: `bootstrap_servers` is for the super user, `guarded_port` for the others."""

    def __init__(
        self, folder: Path, users: Mapping[str, str], properties: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(folder, properties, heap="384m")
        (self.guarded_port,) = free_ports(1)
        listener = f",SASL_PLAINTEXT://127.0.0.1:{self.guarded_port}"
        self.properties["listeners"] += listener
        self.properties["advertised.listeners"] += listener
        self.properties["listener.security.protocol.map"] += ",SASL_PLAINTEXT:SASL_PLAINTEXT"
        self.properties |= guarded_settings(users) | {
            "group.share.heartbeat.interval.ms": "200",
            "group.share.assignment.interval.ms": "0",
            "group.consumer.assignment.interval.ms": "0",
        }
