"""SASL_SSL, or client certificates, and StandardAuthorizer for a cluster: what each side sets.

Nodes talk to each other over SASL_SSL as well, as the super user.  Clients are users with
passwords, or with certificates (`MutualTls`); without ACLs they may do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.interop.secure_listeners import Certificates

SUPER_USER, SUPER_PASSWORD = "admin", "admin-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
JAAS = "org.apache.kafka.common.security"


@dataclass(slots=True)
class Security:
    """What a cluster's listeners ask for; ``users`` has passwords by name, without commas."""

    protocol: ClassVar[str] = "SASL_SSL"
    users: dict[str, str] = field(default_factory=dict)
    mechanism: str = "SCRAM-SHA-512"
    """What `client_options` and its sisters use; listeners take PLAIN and both SCRAMs."""
    certificates: Certificates | None = None

    def make_certificates(self, folder: Path, names: Sequence[str]) -> None:
        """Make what `properties` names; the broker's certificate is for 127.0.0.1 and names."""
        self.certificates = Certificates(folder, names=names)

    def properties(self) -> dict[str, str]:
        """What a node has to set."""
        passwords = {SUPER_USER: SUPER_PASSWORD, **self.users}
        users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
        me = f'username="{SUPER_USER}" password="{SUPER_PASSWORD}"'
        plain = f"{JAAS}.plain.PlainLoginModule required"
        scram = f"{JAAS}.scram.ScramLoginModule required;"
        properties = {
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{SUPER_USER}",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.client.plain.sasl.jaas.config": f"{plain} {users};",
            "listener.name.client.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.client.scram-sha-512.sasl.jaas.config": scram,
        }
        for listener in ("broker", "controller"):
            key = f"listener.name.{listener}.plain.sasl.jaas.config"
            properties[key] = f'{plain} {me} user_{SUPER_USER}="{SUPER_PASSWORD}";'
        return properties

    def files(self) -> dict[str, str]:
        """The certificates that a node has to set."""
        assert self.certificates is not None, "certificates are made when the cluster starts"
        return {
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.location": str(self.certificates.authority),
        }

    def format_options(self) -> list[str]:
        """What Kafka's storage tool has to add."""
        passwords = {SUPER_USER: SUPER_PASSWORD, **self.users}
        return [
            f'--add-scram={mechanism}=[name="{name}",password="{password}"]'
            for mechanism in MECHANISMS[1:]
            for name, password in passwords.items()
        ]

    def client_options(self, user: str = SUPER_USER) -> dict[str, Any]:
        """Options of our clients for this user, without the addresses."""
        assert self.certificates is not None, "certificates are made when the cluster starts"
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.certificates.authority),
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": self.password_of(user),
        }

    def kafka_properties(self, user: str = SUPER_USER) -> dict[str, str]:
        """Properties of Java clients and Kafka's tools for this user."""
        assert self.certificates is not None, "certificates are made when the cluster starts"
        module = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
        login = f'username="{user}" password="{self.password_of(user)}"'
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": f"{JAAS}.{module}LoginModule required {login};",
        }

    def librdkafka_config(self, user: str = SUPER_USER) -> dict[str, str]:
        """Configuration of confluent-kafka for this user."""
        assert self.certificates is not None, "certificates are made when the cluster starts"
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.authority),
            "sasl.mechanism": self.mechanism,
            "sasl.username": user,
            "sasl.password": self.password_of(user),
        }

    def password_of(self, user: str) -> str:
        return SUPER_PASSWORD if user == SUPER_USER else self.users[user]


@dataclass(slots=True)
class MutualTls:
    """Who has a certificate of the authority is the user of its distinguished name.

    Nodes have a certificate as well, and are super users by it, as ``admin`` is.
    """

    protocol: ClassVar[str] = "SSL"
    certificates: Certificates | None = None

    def make_certificates(self, folder: Path, names: Sequence[str]) -> None:
        """Make what `properties` names; the broker's certificate is for 127.0.0.1 and names."""
        self.certificates = Certificates(folder, names=names)
        self.certificates.client_named(SUPER_USER)

    def properties(self) -> dict[str, str]:
        """What a node has to set."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:CN=broker;User:CN={SUPER_USER}",
        }

    def files(self) -> dict[str, str]:
        """The certificates that a node has to set."""
        assert self.certificates is not None, "certificates are made when the cluster starts"
        return {
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.location": str(self.certificates.authority),
        }

    def format_options(self) -> list[str]:
        """What Kafka's storage tool has to add: nothing."""
        return []

    def client_options(self, user: str = SUPER_USER) -> dict[str, Any]:
        """Options of our clients for this user, whose certificate was made before."""
        assert self.certificates is not None, "certificates are made when the cluster starts"
        return {
            "security_protocol": "SSL",
            "ssl_cafile": str(self.certificates.authority),
            "ssl_certfile": str(self.certificates.folder / f"{user}-both.pem"),
        }

    def kafka_properties(self, user: str = SUPER_USER) -> dict[str, str]:
        """Properties of Java clients and Kafka's tools for this user."""
        options = self.client_options(user)
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": options["ssl_cafile"],
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": options["ssl_certfile"],
        }
