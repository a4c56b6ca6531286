"""A Kafka with listeners for TLS and for every SASL mechanism, and certificates for them.

The certificates are made by openssl for one test run: an authority, a broker's certificate for
127.0.0.1, and a client's with an encrypted key.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.kafka_peer import KafkaPeer, free_ports

USER, PASSWORD = "billing", "correct, horse=staple"
KEY_PASSWORD = "battery"
LOGIN_MS = 2_000
"""How long a login lasts on SASL_PLAINTEXT."""

JAAS = "org.apache.kafka.common.security"
CLAIM = 'unsecuredLoginStringClaim_sub="broker"'


def why_no_certificates() -> str | None:
    """Why there can be no certificates here, or None when there can."""
    return None if shutil.which("openssl") else "no openssl on the PATH"


class Certificates:
    """The files, in one folder; the broker's certificate is for 127.0.0.1 and these names."""

    def __init__(self, folder: Path, names: Sequence[str] = ()) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority, self.other_authority = folder / "ca.pem", folder / "other-ca.pem"
        for name in ("ca", "other-ca"):
            self._openssl(
                "req", "-x509", *self._new_key(name), "-subj", f"/CN={name}", "-days", "2"
            )
        hosts = ",".join(["IP:127.0.0.1", *(f"DNS:{name}" for name in names)])
        self._signed("broker", f"subjectAltName={hosts}")
        self._signed("client", "subjectAltName=DNS:client")
        self.client, self.client_key = folder / "client.pem", folder / "client-locked.key"
        plain = folder / "client.key"
        self._openssl(
            *("pkcs8", "-topk8", "-in", str(plain), "-out", str(self.client_key)),
            *("-v2", "aes-256-cbc", "-passout", f"pass:{KEY_PASSWORD}"),
        )
        # Kafka takes key and certificates from one file.
        both = (folder / "broker.key").read_text() + (folder / "broker.pem").read_text()
        self.broker = folder / "broker-both.pem"
        self.broker.write_text(both)

    def client_named(self, name: str, *, authority: str = "ca", days: int = 2) -> Path:
        """A client's key and certificate in one file; with ``days`` -1 it is out of date."""
        signed, both = self.folder / f"{name}.pem", self.folder / f"{name}-both.pem"
        request = self.folder / f"{name}.csr"
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        key_file = self.folder / f"{name}.key"
        self._openssl(
            *("req", *key, "-subj", f"/CN={name}", "-keyout", str(key_file), "-out", str(request))
        )
        self._openssl(
            *("x509", "-req", "-in", str(request), "-out", str(signed), "-days", str(days)),
            *("-CA", f"{self.folder}/{authority}.pem", "-CAkey", f"{self.folder}/{authority}.key"),
        )
        both.write_text(key_file.read_text() + signed.read_text())
        return both

    def _signed(self, name: str, extension: str) -> None:
        self._openssl(
            *("req", "-x509", *self._new_key(name), "-subj", f"/CN={name}", "-days", "2"),
            *("-CA", str(self.authority), "-CAkey", str(self.folder / "ca.key")),
            *("-addext", extension, "-addext", "basicConstraints=critical,CA:FALSE"),
        )

    def _new_key(self, name: str) -> tuple[str, ...]:
        files = ("-keyout", str(self.folder / f"{name}.key"), "-out", f"{self.folder}/{name}.pem")
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *files)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)


class SecureKafka(KafkaPeer):
    """One node with a listener for each security protocol."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        super().__init__(folder, heap="512m")
        self.tls_port, self.sasl_tls_port, self.sasl_port = free_ports(3)
        ports = {
            "SSL": self.tls_port,
            "SASL_SSL": self.sasl_tls_port,
            "SASL_PLAINTEXT": self.sasl_port,
        }
        listeners = "".join(f",{name}://127.0.0.1:{port}" for name, port in ports.items())
        protocols = "".join(f",{name}:{name}" for name in ports)
        mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
        for key, more in (
            ("listeners", listeners),
            ("advertised.listeners", listeners),
            ("listener.security.protocol.map", protocols),
        ):
            self.properties[key] += more
        self.properties |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.authority),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": mechanisms,
            "listener.name.sasl_plaintext.connections.max.reauth.ms": str(LOGIN_MS),
        }
        for listener in ("sasl_ssl", "sasl_plaintext"):
            for mechanism, module in (
                ("plain", f'{JAAS}.plain.PlainLoginModule required user_{USER}="{PASSWORD}"'),
                ("scram-sha-256", f"{JAAS}.scram.ScramLoginModule required"),
                ("scram-sha-512", f"{JAAS}.scram.ScramLoginModule required"),
                ("oauthbearer", f"{JAAS}.oauthbearer.OAuthBearerLoginModule required {CLAIM}"),
            ):
                key = f"listener.name.{listener}.{mechanism}.sasl.jaas.config"
                self.properties[key] = f"{module};"

    @property
    def client_ports(self) -> tuple[int, ...]:
        return (self.port, self.tls_port, self.sasl_tls_port, self.sasl_port)

    def at(self, port: int) -> str:
        return f"127.0.0.1:{port}"


def unsecured_token(*, seconds: float = 3600.0) -> str:
    """A token as Kafka's development mode takes it: claims that nobody signed."""
    now = time.time()
    claims = {"sub": USER, "iat": now - 60, "exp": now + seconds}
    parts = (json.dumps(section).encode() for section in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."
