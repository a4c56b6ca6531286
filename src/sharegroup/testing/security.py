"""A broker under test that lets in users only: TLS, passwords and ACLs, in one line.

    security = Security(
        users={"billing": "its-secret"},
        acls=[AclBinding(AclResourceType.TOPIC, "orders", "User:billing", AclOperation.READ)],
        tls=True,
    )
    with run_broker(security=security) as b:
        ShareConsumer("orders", **b.client_options("billing"), group_id="billing")

The first listener is for the clients of a test.  A second one, without TLS and passwords, is for
what the test asks of its broker (``b.produce``): there everything is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharegroup.broker.access.jaas import PLAIN_MODULE
from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.core.security.principal import ANONYMOUS
from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install

if TYPE_CHECKING:
    # Imported at first use, like all of the client.
    from sharegroup.client import AclBinding

CLIENTS, TESTS = "CLIENTS", "TESTS"
"""The names of the two listeners."""

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What the clients of a broker need to come in, and what they may do then."""

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords by name, for PLAIN and SCRAM; without users, nobody has to log in."""
    acls: Sequence[AclBinding] | None = None
    """What the users may do; None: everything, because there is no authorizer."""
    tls: bool = False
    """Whether connections are encrypted; needs the extra ``tls``."""

    def __post_init__(self) -> None:
        if self.acls is not None and not self.users:
            raise ValueError("ACLs need users: Security(users={'alice': 'her-secret'}, acls=[...])")
        if not (self.users or self.tls):
            raise ValueError("Security needs users, tls=True or both")

    @property
    def protocol(self) -> str:
        """The security protocol of the clients."""
        return ("SASL_" if self.users else "") + ("SSL" if self.tls else "PLAINTEXT")

    def settings(self, folder: Path, port: int) -> dict[str, str]:
        """Return the settings of a broker; certificates are made in ``folder`` if it has none."""
        settings = {
            "listeners": f"{CLIENTS}://127.0.0.1:{port},{TESTS}://127.0.0.1:0",
            "listener.security.protocol.map": f"{CLIENTS}:{self.protocol},{TESTS}:PLAINTEXT",
        }
        if self.users:
            logins = " ".join(
                f'user_{name}="{_quoted(password)}"' for name, password in self.users.items()
            )
            settings["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            key = f"listener.name.{CLIENTS.lower()}.plain.sasl.jaas.config"
            settings[key] = f"{PLAIN_MODULE} required {logins};"
        if self.acls is not None:
            settings["authorizer.class.name"] = STANDARD_AUTHORIZER
            # Nobody is anonymous at the first listener, because there clients log in.
            settings["super.users"] = str(ANONYMOUS)
        if self.tls:
            settings |= _tls_settings(folder)
        return settings

    def client_options(self, folder: Path, user: str | None, mechanism: str) -> dict[str, Any]:
        """Return the options of a client in Python for this user, without the address."""
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if self.tls:
            options["ssl_cafile"] = str(folder / "ca.pem")
        if self.users:
            options |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": self._password_of(user),
            }
        elif user is not None:
            raise ValueError(f"there are no users, so {user!r} cannot log in")
        return options

    def librdkafka_config(self, folder: Path, user: str | None, mechanism: str) -> dict[str, str]:
        """Return the same as configuration of confluent-kafka."""
        names = {
            "security_protocol": "security.protocol",
            "ssl_cafile": "ssl.ca.location",
            "sasl_mechanism": "sasl.mechanism",
            "sasl_plain_username": "sasl.username",
            "sasl_plain_password": "sasl.password",
        }
        options = self.client_options(folder, user, mechanism)
        return {names[name]: str(value) for name, value in options.items()}

    def _password_of(self, user: str | None) -> str:
        if user is None or user not in self.users:
            raise ValueError(f"the users are {sorted(self.users)}; {user!r} is none of them")
        return self.users[user]


def internal_address(listeners: str) -> str | None:
    """Return the address for what a test asks of its broker; None without a listener for that."""
    for listener in listeners.split(","):
        name, _, address = listener.partition("://")
        if name == TESTS:
            return address
    return None


def _tls_settings(folder: Path) -> dict[str, str]:
    try:
        # Imported here because it needs the extra `tls`, and only for certificates.
        from sharegroup.cli.access.local_certificates import make_certificates
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{error}: Security(tls=True) makes certificates, which needs the extra tls: "
            f"{pip_install('tls')}"
        ) from error
    if not (folder / "ca.pem").exists():
        make_certificates(folder, hosts=("127.0.0.1", "localhost"), clients=())
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / "server.pem")}


def _quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')
