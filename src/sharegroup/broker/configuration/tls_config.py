"""Configuration of TLS: Kafka's ``ssl.*`` keys that have an effect on this broker.

Each key may be set for all listeners, or for one: ``listener.name.external.ssl.client.auth``
(`listener_settings`).
"""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import ConfigPart, ConfigType, key

STORE_TYPES = ("PEM", "PKCS12", "JKS")
PEM_KEYS = frozenset(
    {"ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates"}
)
"""The keys whose values are PEM."""

CLIENT_AUTH = ("required", "requested", "none")


class TlsConfig(ConfigPart):
    """Key, certificates and TLS versions of listeners with the protocol SSL or SASL_SSL."""

    keystore_type: str = key(
        "ssl.keystore.type",
        "JKS",
        "Format of the key and certificates of the broker: `PEM` or `PKCS12`. With `JKS`, a file "
        "in the format PKCS12 is accepted, as current versions of `keytool` make it; the older "
        "format is refused with the command that converts it.",
        per_listener=True,
    )
    keystore_location: str | None = key(
        "ssl.keystore.location",
        None,
        "File with the private key and the certificate chain of the broker. The broker reads it "
        "again when it has changed.",
        per_listener=True,
    )
    keystore_password: str | None = key(
        "ssl.keystore.password",
        None,
        "Password of a PKCS12 file.",
        kind=ConfigType.PASSWORD,
        per_listener=True,
    )
    key_password: str | None = key(
        "ssl.key.password",
        None,
        "Password of an encrypted private key in the format PEM.",
        kind=ConfigType.PASSWORD,
        per_listener=True,
    )
    keystore_key: str | None = key(
        "ssl.keystore.key",
        None,
        "Private key in the format PEM (PKCS#8), as text instead of a file.",
        kind=ConfigType.PASSWORD,
        per_listener=True,
    )
    keystore_chain: str | None = key(
        "ssl.keystore.certificate.chain",
        None,
        "Certificate chain in the format PEM, the broker's own certificate first, as text instead "
        "of a file.",
        kind=ConfigType.PASSWORD,
        per_listener=True,
    )
    truststore_type: str = key(
        "ssl.truststore.type",
        "JKS",
        "Format of the certificates of the authorities: `PEM` or `PKCS12`; `JKS` as for "
        "`ssl.keystore.type`.",
        per_listener=True,
    )
    truststore_location: str | None = key(
        "ssl.truststore.location",
        None,
        "File with the certificates of the authorities that sign certificates of clients.",
        per_listener=True,
    )
    truststore_password: str | None = key(
        "ssl.truststore.password",
        None,
        "Password of a PKCS12 file of authorities.",
        kind=ConfigType.PASSWORD,
        per_listener=True,
    )
    truststore_certificates: str | None = key(
        "ssl.truststore.certificates",
        None,
        "Certificates of the authorities in the format PEM, as text instead of a file.",
        kind=ConfigType.PASSWORD,
        per_listener=True,
    )
    client_auth: str = key(
        "ssl.client.auth",
        "none",
        "Whether clients need a certificate: `required`, `requested` or `none`.",
        choices=CLIENT_AUTH,
        per_listener=True,
    )
    enabled_protocols: tuple[str, ...] = key(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS: `TLSv1.2`, `TLSv1.3`. Older versions are refused.",
        per_listener=True,
    )
    cipher_suites: tuple[str, ...] = key(
        "ssl.cipher.suites",
        (),
        "Cipher suites by the names of IANA or of OpenSSL; empty: all secure ones. Those of TLS "
        "1.3 can only be selected together.",
        per_listener=True,
    )
    principal_rules: str = key(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "Rules that turn the subject of a client's certificate into the name of a user, as in "
        "Kafka: `RULE:pattern/replacement/[LU],...,DEFAULT`; the first rule that matches counts.",
        fixed=True,
        per_listener=True,
    )
    allow_name_changes: bool = key(
        "ssl.allow.dn.changes",
        False,
        "Whether a new certificate of a running broker may have another subject.",
        fixed=True,
        per_listener=True,
    )
    allow_host_changes: bool = key(
        "ssl.allow.san.changes",
        False,
        "Whether a new certificate of a running broker may lack alternative names of the old one.",
        fixed=True,
        per_listener=True,
    )
