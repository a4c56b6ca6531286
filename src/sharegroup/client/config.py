"""The settings that all clients and the producer take: names, defaults, ranges, checked once.

Names are Kafka's with underscores for dots; times are int milliseconds and say so.  The share
consumer's own are in `consumer_config`.
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral
from types import MappingProxyType, NoneType
from typing import Any, ClassVar, Literal, TypedDict, TypeVar

from sharegroup.errors import InvalidConfig

Bootstrap = str | list[str]
Compression = Literal["gzip", "snappy", "lz4", "zstd"]
Acks = Literal["all", 0, 1, -1]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
TokenProvider = Callable[[], str | Awaitable[str]]
"""Returns a bearer token, at once or when awaited; called for each login.

A plain function is called in a thread, so it may ask a server.
"""

CHECKED_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "int": ((Integral,), "a whole number"),
    "int | None": ((Integral, NoneType), "a whole number, or None"),
}
"""By annotation, as a field of a config has it."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TLS_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
CREDENTIALS = ("sasl_plain_username", "sasl_plain_password")


class ClientOptions(TypedDict, total=False):
    """Options that all three clients take."""

    bootstrap_servers: Bootstrap
    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    connect_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    response_bytes_max: int
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | None


class ProducerOptions(ClientOptions, total=False):
    """Options of a Producer."""

    acks: Acks
    idempotent: bool
    linger_ms: int
    batch_bytes: int
    buffer_bytes: int
    request_bytes_max: int
    compression: Compression | None
    delivery_timeout_ms: int
    max_block_ms: int
    in_flight_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client needs to find its brokers and to give up in time."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Options of Kafka's that this client does not take, and what to use instead."""

    metrics_group: ClassVar[str] = "admin-client-metrics"
    """Where this client's connections are counted, as in Kafka's own clients."""

    bootstrap_servers: Bootstrap = "127.0.0.1:9092"
    client_id: str = "sharegroup"
    request_timeout_ms: int = 30_000
    """A request without an answer after so long costs its connection."""
    default_api_timeout_ms: int = 60_000
    """How long a call tries, over reconnects and retries, when it takes no timeout of its own."""
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    response_bytes_max: int = 128 * 1024 * 1024
    """A broker that announces a longer answer is disconnected."""
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = None
    """A context of the application's own, instead of the files below."""
    ssl_cafile: str | None = None
    """Who may sign a broker's certificate, as PEM; None: whom the system trusts."""
    ssl_certfile: str | None = None
    """The client's own certificate, as PEM, for brokers that ask for one."""
    ssl_keyfile: str | None = None
    """The certificate's key, if it is not in the same file."""
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    sasl_mechanism: SaslMechanism | None = None
    sasl_plain_username: str | None = None
    """For PLAIN and for SCRAM, as with other Python clients."""
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_oauth_token_provider: TokenProvider | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_security(self)
        positive(
            self,
            "request_timeout_ms",
            "default_api_timeout_ms",
            "connect_timeout_ms",
            "retry_backoff_ms",
            "metadata_max_age_ms",
            "response_bytes_max",
        )
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise InvalidConfig(
                f"retry_backoff_max_ms={self.retry_backoff_max_ms} is below "
                f"retry_backoff_ms={self.retry_backoff_ms}"
            )
        if not addresses_of(self.bootstrap_servers):
            raise InvalidConfig("bootstrap_servers is empty; expected 'host:port[,host:port]'")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections begin with a login."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """See docs/config.md and Kafka's producer configs of the same names."""

    metrics_group: ClassVar[str] = "producer-metrics"

    acks: Acks = "all"
    idempotent: bool = True
    linger_ms: int = 5
    batch_bytes: int = 64 * 1024
    """A batch that reaches this many bytes before compression is sent without lingering.

    Not more than ``request_bytes_max``.
    """
    buffer_bytes: int = 32 * 1024 * 1024
    """Bytes of records that wait or are under way; `send` waits when they are used up."""
    request_bytes_max: int = 1024 * 1024
    compression: Compression | None = None
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    in_flight_max: int = 5
    """Batches of one partition under way at once; brokers remember the last five."""

    def __post_init__(self) -> None:
        super(ProducerConfig, self).__post_init__()
        if self.acks not in ("all", -1, 0, 1):
            raise InvalidConfig(f"acks={self.acks!r}; expected 'all', 1 or 0")
        if self.idempotent and self.acks not in ("all", -1):
            raise InvalidConfig(f"acks={self.acks!r} needs idempotent=False")
        if self.compression not in (None, "gzip", "snappy", "lz4", "zstd"):
            raise InvalidConfig(
                f"compression={self.compression!r}; expected None, gzip, snappy, lz4 or zstd"
            )
        if not 1 <= self.in_flight_max <= 5:
            raise InvalidConfig(f"in_flight_max={self.in_flight_max}; expected 1 to 5")
        if self.linger_ms < 0:
            raise InvalidConfig(f"linger_ms={self.linger_ms}; expected 0 or more")
        positive(
            self,
            "batch_bytes",
            "buffer_bytes",
            "request_bytes_max",
            "delivery_timeout_ms",
            "max_block_ms",
        )
        if self.buffer_bytes < self.request_bytes_max:
            # A record between the two would be allowed, and wait for room that never comes.
            raise InvalidConfig(
                f"buffer_bytes={self.buffer_bytes} is below "
                f"request_bytes_max={self.request_bytes_max}"
            )

    @property
    def acks_number(self) -> int:
        """As on the wire: -1 for all."""
        return -1 if self.acks == "all" else self.acks


Config = TypeVar("Config", bound=ClientConfig)


def config_from(kind: type[Config], options: Mapping[str, Any]) -> Config:
    """The checked config; an option that there is none of is named, with what was meant."""
    known = {one.name: str(one.type) for one in fields(kind)}
    for name, value in options.items():
        if name in known:
            _check_type(name, value, known[name])
            continue
        if name in kind.elsewhere:
            raise InvalidConfig(f"{name} is no option of this client; use {kind.elsewhere[name]}")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidConfig(f"unknown option {name}{hint}")
    return kind(**options)


def _check_type(name: str, value: object, annotation: str) -> None:
    """A "false" from the environment would be true, and a "5" fail far from here."""
    if annotation not in CHECKED_TYPES:
        return
    types, expected = CHECKED_TYPES[annotation]
    if not isinstance(value, types):
        raise InvalidConfig(f"{name}={value!r}; expected {expected}")


def addresses_of(bootstrap: Bootstrap) -> tuple[tuple[str, int], ...]:
    """The hosts and ports of a bootstrap list, given as text or as a list of texts."""
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    return tuple(_address(text.strip()) for text in texts if text.strip())


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InvalidConfig(f"bootstrap server {text!r}: expected host:port")
    return host.strip("[]"), int(port)


def positive(config: ClientConfig, *names: str) -> None:
    """Check that each of these options is 1 or more."""
    for name in names:
        if getattr(config, name) < 1:
            raise InvalidConfig(f"{name}={getattr(config, name)}; expected 1 or more")


def one_of(config: ClientConfig, name: str, *allowed: str) -> None:
    """Check that this option has one of these values."""
    if getattr(config, name) not in allowed:
        raise InvalidConfig(f"{name}={getattr(config, name)!r}; expected {' or '.join(allowed)}")


def _check_security(config: ClientConfig) -> None:
    """A setting that the protocol does not use is refused: who sets it expects it to protect."""
    one_of(config, "security_protocol", *PROTOCOLS)
    protocol = config.security_protocol
    given = [name for name in TLS_FILES if getattr(config, name) is not None]
    if not config.ssl_check_hostname:
        given.append("ssl_check_hostname")
    if config.ssl_context is not None and given:
        raise InvalidConfig(f"ssl_context excludes {', '.join(given)}: set them in the context")
    if config.ssl_context is not None:
        given = ["ssl_context"]
    if given and not config.uses_tls:
        raise InvalidConfig(
            f"{', '.join(given)} with security_protocol={protocol!r}; expected SSL or SASL_SSL"
        )
    if config.ssl_certfile is None and (config.ssl_keyfile or config.ssl_password):
        raise InvalidConfig("ssl_keyfile and ssl_password need ssl_certfile")
    _check_sasl(config, protocol)


def _check_sasl(config: ClientConfig, protocol: str) -> None:
    names = ("sasl_mechanism", *CREDENTIALS, "sasl_oauth_token_provider")
    given = {name for name in names if getattr(config, name) is not None}
    if not config.uses_sasl:
        if given:
            raise InvalidConfig(
                f"{', '.join(sorted(given))} with security_protocol={protocol!r}; "
                f"expected SASL_SSL or SASL_PLAINTEXT"
            )
        return
    one_of(config, "sasl_mechanism", *MECHANISMS)
    with_token = config.sasl_mechanism == "OAUTHBEARER"
    needed = {"sasl_oauth_token_provider"} if with_token else set(CREDENTIALS)
    needed.add("sasl_mechanism")
    for what, differing in (("needs", needed - given), ("excludes", given - needed)):
        if differing:
            names_text = " and ".join(sorted(differing))
            raise InvalidConfig(f"sasl_mechanism={config.sasl_mechanism!r} {what} {names_text}")
    if not with_token and not all(getattr(config, name) for name in CREDENTIALS):
        raise InvalidConfig("sasl_plain_username and sasl_plain_password must not be empty")
    if any("\0" in (getattr(config, name) or "") for name in CREDENTIALS):
        raise InvalidConfig("sasl_plain_username and sasl_plain_password must not contain NUL")
