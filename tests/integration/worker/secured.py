"""One real Kafka with an authorizer, for tests about rights: SASL_SSL for users, and a listener
without a login, whose clients may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.interop.secure_listeners import PASSWORD, USER, Certificates, SecureKafka
from tests.support import confluent_calls
from tests.support.limits import HANGING_SECONDS

EXACT, PREFIX = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
READ, WRITE = AclOperation.READ, AclOperation.WRITE
Right = tuple[AclOperation, ResourceType, str]


class Secured:
    """The broker, and what the one user of its secured listener may do."""

    def __init__(self, kafka: SecureKafka, certificates: Certificates) -> None:
        self.kafka = kafka
        self._certificates = certificates

    @property
    def open_bootstrap(self) -> str:
        """Where everything is allowed."""
        return self.kafka.bootstrap_servers

    def options(self, password: str = PASSWORD) -> dict[str, Any]:
        """How one of our clients gets in."""
        return {
            "bootstrap_servers": self.kafka.at(self.kafka.sasl_tls_port),
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self._certificates.authority),
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }

    def grant(self, *rights: Right) -> None:
        """Let the user do this; a name that ends in ``*`` is a prefix."""
        bindings = [
            AclBinding(
                kind,
                name.rstrip("*"),
                PREFIX if name.endswith("*") else EXACT,
                f"User:{USER}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation, kind, name in rights
        ]
        admin = confluent_calls.admin(self.open_bootstrap)
        for future in admin.create_acls(bindings).values():
            future.result(HANGING_SECONDS)


@contextmanager
def secured(folder: Path, settings: dict[str, str]) -> Iterator[Secured]:
    """A broker whose user may do nothing yet."""
    certificates = Certificates(folder / "certificates")
    kafka = SecureKafka(folder / "kafka", certificates)
    kafka.properties |= settings | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with kafka:
        yield Secured(kafka, certificates)
        confluent_calls.admin.cache_clear()


def of_worker(group: str, topic: str) -> list[Right]:
    """What docs/worker.md says that a worker needs whose topics exist."""
    own = f"{group}.retry"
    return [
        (READ, TOPIC, topic),
        (READ, TOPIC, own),
        (WRITE, TOPIC, own),
        (READ, TOPIC, f"{own}.*"),
        (WRITE, TOPIC, f"{own}.*"),
        (WRITE, TOPIC, f"{group}.dead"),
        (READ, GROUP, group),
        (READ, GROUP, f"{own}-scheduler"),
    ]
