"""A broker that lets in users only, for attacks by somebody with few rights.

The attacker's user may do everything with topics and groups, and nothing with the cluster: no
settings of brokers, no users, no ACLs, no quotas.  Whoever makes ready what is attacked, and the
honest clients, have a user of their own.
"""

from __future__ import annotations

from pathlib import Path

from kio.schema.alter_client_quotas.v1 import request as alter_client_quotas
from kio.schema.create_acls.v3 import request as create_acls
from kio.static.primitive import f64, i8

from sharegroup.broker.access.jaas import PLAIN_MODULE
from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.protocol_enums import (
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from tests.faults.login import Login
from tests.faults.raw_connection import RawConnection
from tests.interop.secure_listeners import Certificates
from tests.support.kafka_peer import free_ports

HONEST, ATTACKER = "honest", "mallory"
PASSWORD = "its-secret"


class Entrance:
    """A listener with TLS and SASL PLAIN, and who may come in."""

    def __init__(self, folder: Path) -> None:
        certificates = Certificates(folder)
        authority = str(certificates.authority)
        (self.port,) = free_ports(1)
        users = " ".join(f'user_{name}="{PASSWORD}"' for name in (HONEST, ATTACKER))
        self.honest = Login(authority, HONEST, PASSWORD)
        self.attacker = Login(authority, ATTACKER, PASSWORD)
        self.settings = {
            "listeners": f"SASL_SSL://127.0.0.1:{self.port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.broker),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{HONEST}",
        }

    def limit(self, **quotas: float) -> None:
        """Set quotas for the attacker; the broker must be running."""
        entity = alter_client_quotas.EntityData(entity_type="user", entity_name=ATTACKER)
        entry = alter_client_quotas.EntryData(
            entity=(entity,),
            ops=tuple(
                alter_client_quotas.OpData(key=key, value=f64(value), remove=False)
                for key, value in quotas.items()
            ),
        )
        request = alter_client_quotas.AlterClientQuotasRequest(
            entries=(entry,), validate_only=False
        )
        with RawConnection(self.port, login=self.honest) as connection:
            (result,) = connection.ask(request).entries
        assert int(result.error_code) == 0, f"quotas of the attacker: {result.error_message}"

    def let_in(self) -> None:
        """Give the attacker its rights; the broker must be running."""
        request = create_acls.CreateAclsRequest(
            creations=tuple(
                create_acls.AclCreation(
                    resource_type=i8(resource_type),
                    resource_name="*",
                    resource_pattern_type=i8(AclPatternType.LITERAL),
                    principal=f"User:{ATTACKER}",
                    host="*",
                    operation=i8(AclOperation.ALL),
                    permission_type=i8(AclPermission.ALLOW),
                )
                for resource_type in (AclResourceType.TOPIC, AclResourceType.GROUP)
            )
        )
        with RawConnection(self.port, login=self.honest) as connection:
            results = connection.ask(request).results
        codes = [int(result.error_code) for result in results]
        assert not any(codes), f"ACLs of the attacker: error codes {codes}"
