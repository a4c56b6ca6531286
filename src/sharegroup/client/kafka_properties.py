"""Kafka's own properties, text by text, as options of our clients.

A property's name is the option's with dots for underscores, or stands in `NAMES`; the names
that librdkafka has for the same things are understood too.  What protects a connection is
never passed over: a key store that can't be read here, or a ``sasl.`` or ``ssl.`` property that
means nothing here, is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sharegroup.client.config import ClientConfig
from sharegroup.errors import InvalidConfig

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
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.truststore.location": "ssl_cafile",
}
"""Kafka's (and librdkafka's) names of our options, where they are not the same word."""

STORE_TYPES = {
    "ssl.truststore.type": "ssl.truststore.location",
    "ssl.keystore.type": "ssl.keystore.location",
}
"""Types of stores, and where the store is; Java's own formats can't be read here."""

OBJECTS = {"ssl_context", "sasl_oauth_token_provider", "key_deserializer", "value_deserializer"}
"""Options that no text can give; Java's files name classes of Java there."""

JAAS = "sasl.jaas.config"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  A name.
CHECK_HOSTNAME = "ssl.endpoint.identification.algorithm"
COMPUTED = (JAAS, TOKEN_URL, CHECK_HOSTNAME)

_JAAS_PAIR = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]+))")
_CREDENTIALS = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
_FILE_URL = "file://"


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Gives the token that is in a file now: whoever renews it writes the file."""

    path: str

    def __call__(self) -> str:
        """The token."""
        return Path(self.path).read_text().strip()


def knows_property(name: str, kind: type[ClientConfig]) -> bool:
    """Whether `client_options` takes it."""
    return name in COMPUTED or name in STORE_TYPES or _keyword(name) in _types(kind)


def client_options(properties: Mapping[str, str], kind: type[ClientConfig]) -> dict[str, Any]:
    """The properties as options of the client whose config is ``kind``.

    InvalidConfig begins with the name of the property that is wrong, and says what it meant.
    """
    _refuse_java_stores(properties)
    types = _types(kind)
    options: dict[str, Any] = {}
    for name, text in properties.items():
        if not knows_property(name, kind):
            raise InvalidConfig(f"{name} is no property of this client{nearest(name, kind)}")
        if name == JAAS:
            options |= _credentials(text)
        elif name == TOKEN_URL:
            options["sasl_oauth_token_provider"] = _token_file(text)
        elif name == CHECK_HOSTNAME:
            options["ssl_check_hostname"] = text != ""
        elif name not in STORE_TYPES:
            options[_keyword(name)] = _value(name, text, types[_keyword(name)])
    return options


def nearest(name: str, kind: type[ClientConfig], prefix: str = "") -> str:
    """A hint at the property that was meant, or nothing."""
    known = [one.replace("_", ".") for one in _types(kind)]
    found = difflib.get_close_matches(name, [*known, *NAMES, *COMPUTED], n=1)
    return f"; did you mean {prefix}{found[0]}?" if found else ""


def _keyword(name: str) -> str:
    return NAMES.get(name, name.replace(".", "_").replace("-", "_"))


def _types(kind: type[ClientConfig]) -> dict[str, str]:
    """The options that a text can give, with their types as the config class writes them.

    What the client refuses with a hint at what to use instead is left to it to refuse.
    """
    taken = {one.name: str(one.type) for one in fields(kind) if one.name not in OBJECTS}
    return dict.fromkeys(kind.elsewhere, "str") | taken


def _refuse_java_stores(properties: Mapping[str, str]) -> None:
    for type_name, location_name in STORE_TYPES.items():
        if location_name in properties and properties.get(type_name, "JKS").upper() != "PEM":
            raise InvalidConfig(
                f"{location_name} is a Java key store; export it as PEM (keytool -exportcert "
                f"-rfc, or openssl pkcs12 -nodes) and set {type_name}=PEM"
            )


def _credentials(jaas: str) -> dict[str, str]:
    """User and password of ``...LoginModule required username="..." password="...";``."""
    found = {key: quoted or bare for key, quoted, bare in _JAAS_PAIR.findall(jaas)}
    missing = [key for key in _CREDENTIALS if key not in found]
    if missing and "OAuthBearer" not in jaas:
        raise InvalidConfig(f"{JAAS} names no {' and no '.join(missing)}")
    return {
        ours: re.sub(r"\\(.)", r"\1", found[key])
        for key, ours in _CREDENTIALS.items()
        if key in found
    }


def _token_file(url: str) -> TokenFile:
    if not url.startswith(_FILE_URL):
        raise InvalidConfig(f"{TOKEN_URL}={url}: expected file:///path of a file with the token")
    return TokenFile(url.removeprefix(_FILE_URL))


def _value(name: str, text: str, type_: str) -> Any:
    """The text as the option's type; acks are words and numbers, the compression none is None."""
    if type_ == "bool":
        if text.lower() not in ("true", "false"):
            raise InvalidConfig(f"{name}={text}: expected true or false")
        return text.lower() == "true"
    is_number = re.fullmatch(r"-?\d+", text) is not None
    if type_ in ("int", "int | None") and not is_number:
        raise InvalidConfig(f"{name}={text}: expected a whole number")
    if type_ in ("int", "int | None") or (type_ == "Acks" and is_number):
        return int(text)
    return None if _keyword(name) == "compression" and text == "none" else text
