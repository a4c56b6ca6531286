"""``--command-config``: the client properties of Kafka's tools, as options of our clients.

A name of Kafka's is ours with underscores for dots, or stands in `NAMES`; the names that
librdkafka has for the same things are understood too.  What protects a connection is never
passed over: a ``ssl.`` or ``sasl.`` property that means nothing here is refused.  Others, a
``key.deserializer`` say, are named on standard error and not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from sharegroup.client.config import ClientConfig

PROTECTION = ("ssl.", "sasl.", "security.")

NAMES: Mapping[str, str] = {
    "batch.size": "batch_bytes",
    "buffer.memory": "buffer_bytes",
    "compression.type": "compression",
    "enable.idempotence": "idempotent",
    "max.in.flight.requests.per.connection": "in_flight_max",
    "max.request.size": "request_bytes_max",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.password": "sasl_plain_password",
    "sasl.username": "sasl_plain_username",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.truststore.location": "ssl_cafile",
}
"""Kafka's (and librdkafka's) names of our options, where they are not the same word."""

ONLY_PEM = {
    "ssl.truststore.type": "ssl.truststore.location",
    "ssl.keystore.type": "ssl.keystore.location",
}
"""Types of stores, and where the store is; Java's own formats can't be read here."""

OBJECTS = {"ssl_context", "sasl_oauth_token_provider", "key_deserializer", "value_deserializer"}
"""Options that no text can give; Java's files name classes of Java there."""

WHOLE_NUMBER = re.compile(r"-?\d+")
JAAS_PAIR = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]+))")
CREDENTIALS = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
FILE_URL = "file://"


def client_options(
    properties: Mapping[str, str], kind: type[ClientConfig], *, warn: Callable[[str], None]
) -> dict[str, Any]:
    """The properties as options of the client whose config is ``kind``."""
    refuse_java_stores(properties)
    known = {one.name: str(one.type) for one in fields(kind) if one.name not in OBJECTS}
    options: dict[str, Any] = {}
    for name, text in properties.items():
        ours = NAMES.get(name, name.replace(".", "_").replace("-", "_"))
        if name in ONLY_PEM:
            continue
        if name == "sasl.jaas.config":
            options.update(_credentials(text))
        elif name == "sasl.oauthbearer.token.endpoint.url":
            options["sasl_oauth_token_provider"] = _token_file(text)
        elif name == "ssl.endpoint.identification.algorithm":
            options["ssl_check_hostname"] = text != ""
        elif ours in known or ours in kind.elsewhere:
            options[ours] = _value(name, text, known.get(ours, "str"))
        elif name.startswith(PROTECTION):
            raise click.UsageError(f"--command-config: {name} means nothing here; remove it")
        else:
            warn(f"--command-config: {name} is not used")
    return options


def refuse_java_stores(properties: Mapping[str, str]) -> None:
    """Fail with what to do when a key or trust store is not in PEM."""
    for type_name, location_name in ONLY_PEM.items():
        if location_name in properties and properties.get(type_name, "JKS").upper() != "PEM":
            raise click.UsageError(
                f"--command-config: {location_name} is a Java key store; export it as PEM (keytool "
                f"-exportcert -rfc, or openssl pkcs12 -nodes) and set {type_name}=PEM"
            )


def _credentials(jaas: str) -> dict[str, str]:
    """User and password of ``...LoginModule required username="..." password="...";``."""
    found = {key: quoted or bare for key, quoted, bare in JAAS_PAIR.findall(jaas)}
    missing = [key for key in CREDENTIALS if key not in found]
    if missing and "OAuthBearer" not in jaas:
        raise click.UsageError(
            f"--command-config: sasl.jaas.config names no {' and no '.join(missing)}"
        )
    return {
        ours: re.sub(r"\\(.)", r"\1", found[key])
        for key, ours in CREDENTIALS.items()
        if key in found
    }


def _token_file(url: str) -> Callable[[], str]:
    """A provider that reads the token anew each time: whoever renews it writes the file."""
    if not url.startswith(FILE_URL):
        raise click.UsageError(
            f"--command-config: sasl.oauthbearer.token.endpoint.url={url}: expected "
            "file:///path of a file with the token"
        )
    path = Path(url.removeprefix(FILE_URL))
    return lambda: path.read_text().strip()


def _value(name: str, text: str, type_: str) -> Any:
    """The text as the option's type, which is written as in its config class."""
    if name == "compression.type":
        return None if text == "none" else text
    if type_ == "bool":
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise click.UsageError(f"--command-config: {name}={text}: expected true or false")
    if type_ in ("int", "int | None"):
        if WHOLE_NUMBER.fullmatch(text):
            return int(text)
        raise click.UsageError(f"--command-config: {name}={text}: expected a whole number")
    # Acks are words and numbers.
    return int(text) if name == "acks" and WHOLE_NUMBER.fullmatch(text) else text
