"""Converts Kafka's client properties (names and texts) to options of the clients.

A property's name is the option's name with dots for underscores, or is listed in `NAMES`.  The
names of librdkafka are accepted too.  Security properties are never ignored: a key store that
cannot be read here, and an unknown ``sasl.`` or ``ssl.`` property, are refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sharegroup.client.settings.client_config import ClientConfig
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
"""Options by the Kafka or librdkafka name of the property, where the names differ."""

STORE_TYPES = {
    "ssl.truststore.type": "ssl.truststore.location",
    "ssl.keystore.type": "ssl.keystore.location",
}
"""The property with a store's type, and the one with its location; only PEM can be read."""

OBJECTS = {"ssl_context", "sasl_oauth_token_provider", "key_deserializer", "value_deserializer"}
"""Options that cannot be given as text; in Kafka's files they are names of Java classes."""

JAAS = "sasl.jaas.config"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  A name.
CHECK_HOSTNAME = "ssl.endpoint.identification.algorithm"
COMPUTED = (JAAS, TOKEN_URL, CHECK_HOSTNAME)

_JAAS_PAIR = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]+))")
_CREDENTIALS = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
_FILE_URL = "file://"


PROTECTION = ("ssl.", "sasl.", "security.")


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Reads the bearer token from a file at each login; another program keeps the file current."""

    path: str

    def __call__(self) -> str:
        """Return the token that is in the file now."""
        return Path(self.path).read_text().strip()


def knows_property(name: str, kind: type[ClientConfig]) -> bool:
    """Whether `client_options` accepts a property of this name."""
    return name in COMPUTED or name in STORE_TYPES or _keyword(name) in _types(kind)


def client_options(properties: Mapping[str, str], kind: type[ClientConfig]) -> dict[str, Any]:
    """Convert properties to options of the client whose config class is ``kind``.

    Raises InvalidConfig, whose text begins with the name of the wrong property.
    """
    _refuse_java_stores(properties)
    types = _types(kind)
    options: dict[str, Any] = {}
    for name, text in properties.items():
        if not knows_property(name, kind):
            raise InvalidConfig(f"{name} is not a property of this client{nearest(name, kind)}")
        if name == JAAS:
            options |= _credentials(text)
        elif name == TOKEN_URL:
            options["sasl_oauth_token_provider"] = _token_file(text)
        elif name == CHECK_HOSTNAME:
            # Java's clients check the name unless the algorithm is empty; by default it is https.
            options["ssl_check_hostname"] = text != ""
        elif name not in STORE_TYPES:
            options[_keyword(name)] = _value(name, text, types[_keyword(name)])
    return options


def shared_options(
    properties: Mapping[str, str],
    kind: type[ClientConfig],
    *,
    warn: Callable[[str], None],
    origin: str,
) -> dict[str, Any]:
    """Convert properties that other tools share, so some may be unknown here: `warn` gets those.

    ``origin`` is what named the properties, for messages.  Raises InvalidConfig for an unknown
    property of the connection's protection and for an invalid value.
    """
    known_properties: dict[str, str] = {}
    for name, text in properties.items():
        if knows_property(name, kind):
            known_properties[name] = text
        elif name.startswith(PROTECTION):
            raise InvalidConfig(f"{origin}: {name} is not supported by this client; remove it")
        else:
            warn(f"{origin}: {name} is ignored")
    try:
        return client_options(known_properties, kind)
    except InvalidConfig as error:
        raise InvalidConfig(f"{origin}: {error}") from error


def nearest(name: str, kind: type[ClientConfig], prefix: str = "") -> str:
    """Return a hint at the known property with the most similar name, or an empty string."""
    options = [option.replace("_", ".") for option in _types(kind)]
    matches = difflib.get_close_matches(name, [*options, *NAMES, *COMPUTED], n=1)
    return f"; did you mean {prefix}{matches[0]}?" if matches else ""


def _keyword(name: str) -> str:
    return NAMES.get(name, name.replace(".", "_").replace("-", "_"))


def _types(kind: type[ClientConfig]) -> dict[str, str]:
    """Return the options that can be given as text, with the annotations of their fields.

    The options in ``elsewhere`` are included: the client itself refuses them, with a hint.
    """
    taken = {field_.name: str(field_.type) for field_ in fields(kind) if field_.name not in OBJECTS}
    return dict.fromkeys(kind.elsewhere, "str") | taken


def _refuse_java_stores(properties: Mapping[str, str]) -> None:
    for type_name, location_name in STORE_TYPES.items():
        # JKS is Kafka's default (`SslConfigs.DEFAULT_SSL_KEYSTORE_TYPE`).
        if location_name in properties and properties.get(type_name, "JKS").upper() != "PEM":
            raise InvalidConfig(
                f"{location_name} is a Java key store; export it as PEM (keytool -exportcert "
                f"-rfc, or openssl pkcs12 -nodes) and set {type_name}=PEM"
            )


def _credentials(jaas: str) -> dict[str, str]:
    """Return user and password of ``...LoginModule required username="..." password="...";``."""
    pairs = {key: quoted or bare for key, quoted, bare in _JAAS_PAIR.findall(jaas)}
    missing = [key for key in _CREDENTIALS if key not in pairs]
    # The login module of OAUTHBEARER takes a token in place of user and password.
    if missing and "OAuthBearer" not in jaas:
        raise InvalidConfig(f"{JAAS} names no {' and no '.join(missing)}")
    return {
        option: re.sub(r"\\(.)", r"\1", pairs[key])
        for key, option in _CREDENTIALS.items()
        if key in pairs
    }


def _token_file(url: str) -> TokenFile:
    if not url.startswith(_FILE_URL):
        raise InvalidConfig(f"{TOKEN_URL}={url}: expected file:///path of a file with the token")
    return TokenFile(url.removeprefix(_FILE_URL))


def _value(name: str, text: str, type_: str) -> Any:
    """Convert a property's text to the type of the option.

    ``acks`` may be a word or a number, and the compression ``none`` becomes None.
    """
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
