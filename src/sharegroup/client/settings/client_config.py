"""Settings of all clients and of the producer: names, defaults, ranges and their checks.

Names are Kafka's with underscores for dots.  Times are int milliseconds, and their names end in
``_ms``.  The settings of the share consumer are in `consumer_config`.
"""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from numbers import Integral
from types import MappingProxyType, NoneType
from typing import Any, ClassVar, Literal, TypedDict, TypeVar

from sharegroup.client.settings.option_values import (
    Compression,
    DnsLookup,
    MetadataRecovery,
    SaslMechanism,
    SecurityProtocol,
)
from sharegroup.errors import InvalidConfig

BootstrapServers = str | list[str]
Acks = Literal["all", 0, 1, -1]
CompressionName = Compression | Literal["gzip", "snappy", "lz4", "zstd"]
SecurityProtocolName = SecurityProtocol | Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
DnsLookupName = DnsLookup | Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
MetadataRecoveryName = MetadataRecovery | Literal["rebootstrap", "none"]
SaslMechanismName = (
    SaslMechanism | Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
)
TokenProvider = Callable[[], str | Awaitable[str]]
"""A function, plain or async, that returns a bearer token; it is called for each login.

A plain function is called in a thread, so it may block on a request to a token server.
"""

CHECKED_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "int": ((Integral,), "a whole number"),
    "int | None": ((Integral, NoneType), "a whole number, or None"),
}
"""The types that values must have, with a text for errors, by the annotation of a field."""

TLS_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
CREDENTIALS = ("sasl_plain_username", "sasl_plain_password")


class ClientOptions(TypedDict, total=False):
    """Options that all clients have in common; an AdminClient has no others."""

    bootstrap_servers: BootstrapServers
    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    connect_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    client_dns_lookup: DnsLookupName
    metadata_recovery_strategy: MetadataRecoveryName
    enable_metrics_push: bool
    metadata_max_age_ms: int
    response_bytes_max: int
    security_protocol: SecurityProtocolName
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanismName | None
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
    compression: CompressionName | None
    delivery_timeout_ms: int
    max_block_ms: int
    in_flight_max: int
    allow_auto_create_topics: bool
    transactional_id: str | None
    transaction_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of every client: brokers, timeouts and security."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Kafka's options that this client does not have, and what to use instead."""

    metrics_group: ClassVar[str] = "admin-client-metrics"
    """The metric group of this client's connection metrics, as in Kafka's own clients."""

    topic_operation: ClassVar[str] = "DESCRIBE"
    """The ACL operation on a topic that the client's user needs; each includes DESCRIBE."""
    group_operation: ClassVar[str] = "DESCRIBE"
    """The ACL operation on a group that the client's user needs."""

    bootstrap_servers: BootstrapServers = "127.0.0.1:9092"
    """Addresses to ask for the cluster's brokers: ``host:port``, with commas between, or a list."""
    client_id: str = "sharegroup"
    """Name of this client in the logs, metrics and quotas of brokers."""
    request_timeout_ms: int = 30_000
    """Time to wait for the answer to a request; after it the connection is closed."""
    default_api_timeout_ms: int = 60_000
    """Timeout of a call, over reconnects and retries, if the call has no timeout of its own."""
    connect_timeout_ms: int = 10_000
    """Time to connect to a broker, with TLS and login."""
    retry_backoff_ms: int = 100
    """Pause before the first retry; it doubles with each retry, with some randomness."""
    retry_backoff_max_ms: int = 1_000
    """Longest pause between two retries; not below ``retry_backoff_ms``."""
    reconnect_backoff_ms: int = 50
    """Pause before a broker that could not be reached is tried again; it doubles each time."""
    reconnect_backoff_max_ms: int = 1_000
    """Longest pause between two attempts to connect; not below ``reconnect_backoff_ms``."""
    connections_max_idle_ms: int = 540_000
    """Time without requests after which a connection is closed; -1: never.

    It is opened again when it is needed.  Brokers close idle connections after 10 minutes.  A
    share consumer has -1, because a share session and its locks end with the connection.
    """
    send_buffer_bytes: int = -1
    """Size of the system's buffer for sending (SO_SNDBUF); -1: the system's default."""
    receive_buffer_bytes: int = -1
    """Size of the system's buffer for receiving (SO_RCVBUF); -1: the system's default."""
    client_dns_lookup: DnsLookup = DnsLookup.USE_ALL_DNS_IPS
    """Whether names of bootstrap servers are replaced by the names of their addresses."""
    metadata_recovery_strategy: MetadataRecovery = MetadataRecovery.REBOOTSTRAP
    """Whether the bootstrap servers are asked again when no known broker can be reached."""
    enable_metrics_push: bool = True
    """Whether metrics are sent to a cluster that asks for them (KIP-714).

    An AdminClient sends none.
    """
    metadata_max_age_ms: int = 300_000
    """Age at which the list of brokers, topics and leaders is requested anew.

    After an error that hints at another leader it is requested at once.
    """
    response_bytes_max: int = 128 * 1024 * 1024
    """Maximum size of a response; a broker that announces a longer one is disconnected."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """Whether connections use TLS (``SSL``) and a login (``SASL_``)."""
    ssl_context: ssl.SSLContext | None = None
    """A TLS context of the application, used instead of the files below."""
    ssl_cafile: str | None = None
    """PEM file of the CAs that may sign a broker's certificate; None: the system's CAs."""
    ssl_certfile: str | None = None
    """PEM file of the client's certificate, for brokers that request one."""
    ssl_keyfile: str | None = None
    """PEM file of the certificate's private key; None: it is in ``ssl_certfile``."""
    ssl_password: str | None = field(default=None, repr=False)
    """Password of the private key; None if the key is not encrypted."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate has to name the host that the client connects to."""
    sasl_mechanism: SaslMechanism | None = None
    """Mechanism of the login; required by the protocols that begin with ``SASL_``."""
    sasl_plain_username: str | None = None
    """User name for PLAIN and SCRAM; the option has this name in other Python clients, too."""
    sasl_plain_password: str | None = field(default=None, repr=False)
    """Password for PLAIN and SCRAM."""
    sasl_oauth_token_provider: TokenProvider | None = field(default=None, repr=False)
    """Function, plain or async, that returns a token for OAUTHBEARER; called for each login."""

    def __post_init__(self) -> None:
        _check_security(self)
        positive(
            self,
            "request_timeout_ms",
            "default_api_timeout_ms",
            "connect_timeout_ms",
            "retry_backoff_ms",
            "reconnect_backoff_ms",
            "metadata_max_age_ms",
            "response_bytes_max",
        )
        choose(self, "client_dns_lookup", DnsLookup)
        choose(self, "metadata_recovery_strategy", MetadataRecovery)
        for name in ("retry_backoff", "reconnect_backoff"):
            first, longest = getattr(self, f"{name}_ms"), getattr(self, f"{name}_max_ms")
            if longest < first:
                raise InvalidConfig(f"{name}_max_ms={longest} is below {name}_ms={first}")
        for name in ("connections_max_idle_ms", "send_buffer_bytes", "receive_buffer_bytes"):
            if (value := getattr(self, name)) < 1 and value != -1:
                raise InvalidConfig(f"{name}={value}; expected 1 or more, or -1")
        if not addresses_of(self.bootstrap_servers, self.security_protocol):
            raise InvalidConfig("bootstrap_servers is empty; expected 'host:port[,host:port]'")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """Whether connections begin with a login."""
        return self.security_protocol in (
            SecurityProtocol.SASL_PLAINTEXT,
            SecurityProtocol.SASL_SSL,
        )

    @property
    def principal(self) -> str | None:
        """The user as ACLs name it (``User:name``); None if only the broker knows the name."""
        name = self.sasl_plain_username
        return None if name is None else f"User:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingConfig(ClientConfig):
    """Settings of a client that reads records, alone or as a member of a group."""

    topic_operation: ClassVar[str] = "READ"
    group_operation: ClassVar[str] = "READ"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Settings of a Producer; docs/client-options.md lists them."""

    metrics_group: ClassVar[str] = "producer-metrics"
    topic_operation: ClassVar[str] = "WRITE"

    acks: Acks = "all"
    """Confirmation to wait for: ``"all"`` (-1) in-sync replicas, the leader (1), or none (0).

    An idempotent producer needs ``"all"``.  With 0 a lost record raises no error.
    """
    idempotent: bool = True
    """Whether brokers recognise a batch that is sent again, and write it once and in order."""
    linger_ms: int = 5
    """Time that a batch waits for more records before it is sent.

    A longer time gives larger batches and fewer requests; 0 sends each batch as soon as a request
    is free.  A full batch does not wait, nor does any during `flush` and `close`.
    """
    batch_bytes: int = 64 * 1024
    """Size in bytes, before compression, at which a batch is sent without lingering.

    Not more than ``request_bytes_max``.  A larger record is a batch of its own.
    """
    buffer_bytes: int = 32 * 1024 * 1024
    """Maximum size of all records that wait or are under way; beyond it `send` waits."""
    request_bytes_max: int = 1024 * 1024
    """Maximum size of a record and of a request, before compression.

    A larger record raises MessageTooLarge.  The broker's ``max.message.bytes`` is a limit, too.
    """
    compression: Compression | None = None
    """Codec of batches: ``gzip``, ``snappy``, ``lz4`` or ``zstd``; None: not compressed."""
    delivery_timeout_ms: int = 120_000
    """Time from `send` to the outcome, over retries, reconnects and restarts of brokers.

    After it the records of the batch fail with RequestTimedOut, which says whether they may have
    been written.
    """
    max_block_ms: int = 60_000
    """Time that `send` waits for the topic's metadata, and as long again for buffer space.

    Also the time that beginning, committing and aborting a transaction may take.
    """
    in_flight_max: int = 5
    """Maximum number of batches of one partition under way; brokers remember the last five."""
    allow_auto_create_topics: bool = True
    """Whether a broker with ``auto.create.topics.enable`` creates a topic that does not exist.

    Without it `send` waits up to ``max_block_ms`` until somebody creates the topic.
    """
    transactional_id: str | None = None
    """Name of this producer in transactions; None: no transactions.

    A producer that starts with the same name ends the transaction of the one before and fences it.
    """
    transaction_timeout_ms: int = 60_000
    """Time after which the coordinator aborts an open transaction.

    Not longer than the broker's ``transaction.max.timeout.ms``.
    """

    def __post_init__(self) -> None:
        # Not `super()`, which finds the class before `slots=True` has made another one of it.
        super(ProducerConfig, self).__post_init__()
        if self.acks not in ("all", -1, 0, 1):
            raise InvalidConfig(f"acks={self.acks!r}; expected 'all', 1 or 0")
        if self.idempotent and self.acks not in ("all", -1):
            raise InvalidConfig(f"acks={self.acks!r} needs idempotent=False")
        if self.compression is not None:
            choose(self, "compression", Compression, "None")
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
            "transaction_timeout_ms",
        )
        if self.transactional_id is not None and not (self.transactional_id and self.idempotent):
            raise InvalidConfig(
                f"transactional_id={self.transactional_id!r}; expected a name that is not empty, "
                f"or None, and idempotent=True"
            )
        if self.buffer_bytes < self.request_bytes_max:
            # A record of a size between the two would pass the check and wait for ever for room.
            raise InvalidConfig(
                f"buffer_bytes={self.buffer_bytes} is below "
                f"request_bytes_max={self.request_bytes_max}"
            )

    @property
    def acks_number(self) -> int:
        """The value of ``acks`` on the wire: -1 for ``"all"``."""
        return -1 if self.acks == "all" else self.acks


Config = TypeVar("Config", bound=ClientConfig)


def config_from(kind: type[Config], options: Mapping[str, Any]) -> Config:
    """Return the checked config; InvalidConfig for an unknown option suggests a similar name."""
    known_options = {field_.name: str(field_.type) for field_ in fields(kind)}
    for name, value in options.items():
        if name in known_options:
            _check_type(name, value, known_options[name])
            continue
        if name in kind.elsewhere:
            raise InvalidConfig(
                f"{name} is not an option of this client; use {kind.elsewhere[name]}"
            )
        similar_names = difflib.get_close_matches(name, known_options, n=1)
        hint = f"; did you mean {similar_names[0]}?" if similar_names else ""
        raise InvalidConfig(f"unknown option {name}{hint}")
    return kind(**options)


def options_of(kind: type[ClientConfig], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the options that a client of this kind has, such as a producer's reader."""
    names = {field_.name for field_ in fields(kind)}
    return {name: value for name, value in options.items() if name in names}


def _check_type(name: str, value: object, annotation: str) -> None:
    """Refuse values of a wrong type, such as a text for a bool or an int.

    The text "false" would count as true, and the text "5" would fail far from here.
    """
    if annotation not in CHECKED_TYPES:
        return
    types, expected = CHECKED_TYPES[annotation]
    if not isinstance(value, types):
        raise InvalidConfig(f"{name}={value!r}; expected {expected}")


ADDRESS = re.compile(r"(?:([\w.-]+)://)?(?:\[([\w:.%-]+)\]|([\w:.%-]+)):([0-9]{1,5})")
"""A bootstrap server: perhaps a protocol, which Java's clients allow, a host and a port."""


def addresses_of(
    bootstrap_servers: BootstrapServers, protocol: str | None = None
) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports of bootstrap servers given as a string or a list of strings.

    A server that names another protocol than ``protocol``, if that is given, raises InvalidConfig.
    """
    texts = (
        bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else bootstrap_servers
    )
    return tuple(_address(text.strip(), protocol) for text in texts if text.strip())


def _address(text: str, protocol: str | None) -> tuple[str, int]:
    match = ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[4]) < 2**16:
        raise InvalidConfig(f"bootstrap server {text!r}: expected host:port")
    scheme, host = match[1], match[2] or match[3]
    if scheme is not None and protocol is not None and scheme.upper() != protocol:
        raise InvalidConfig(
            f"bootstrap server {text!r}: expected {host}:{match[4]} without {scheme}://; "
            f"security_protocol chooses the protocol, and it is {protocol}"
        )
    return host, int(match[4])


def positive(config: ClientConfig, *names: str) -> None:
    """Raise InvalidConfig unless each of these options is 1 or more."""
    for name in names:
        if getattr(config, name) < 1:
            raise InvalidConfig(f"{name}={getattr(config, name)}; expected 1 or more")


def choose(config: ClientConfig, name: str, kind: type[StrEnum], *others: str) -> None:
    """Convert an option to its enum; raise InvalidConfig if it has none of the enum's values.

    ``others`` are further values that the error mentions.
    """
    given = getattr(config, name)
    try:
        object.__setattr__(config, name, kind(given))
    except ValueError:
        *expected, last = [*others, *(str(member) for member in kind.__members__.values())]
        raise InvalidConfig(f"{name}={given!r}; expected {', '.join(expected)} or {last}") from None


def _check_security(config: ClientConfig) -> None:
    """Refuse security settings that contradict each other or would have no effect.

    A setting that the protocol does not use is refused, because its user relies on it.
    """
    choose(config, "security_protocol", SecurityProtocol)
    protocol = config.security_protocol
    options = [name for name in TLS_FILES if getattr(config, name) is not None]
    if not config.ssl_check_hostname:
        options.append("ssl_check_hostname")
    if config.ssl_context is not None and options:
        raise InvalidConfig(f"ssl_context excludes {', '.join(options)}: set them in the context")
    if config.ssl_context is not None:
        options = ["ssl_context"]
    if options and not config.uses_tls:
        raise InvalidConfig(
            f"{', '.join(options)} with security_protocol={protocol.value!r}; "
            f"expected SSL or SASL_SSL"
        )
    if config.ssl_certfile is None and (config.ssl_keyfile or config.ssl_password):
        raise InvalidConfig("ssl_keyfile and ssl_password need ssl_certfile")
    _check_sasl(config, protocol)


def _check_sasl(config: ClientConfig, protocol: SecurityProtocol) -> None:
    names = ("sasl_mechanism", *CREDENTIALS, "sasl_oauth_token_provider")
    options = {name for name in names if getattr(config, name) is not None}
    if not config.uses_sasl:
        if options:
            raise InvalidConfig(
                f"{', '.join(sorted(options))} with security_protocol={protocol.value!r}; "
                f"expected SASL_SSL or SASL_PLAINTEXT"
            )
        return
    choose(config, "sasl_mechanism", SaslMechanism)
    with_token = config.sasl_mechanism is SaslMechanism.OAUTHBEARER
    needed = {"sasl_oauth_token_provider"} if with_token else set(CREDENTIALS)
    needed.add("sasl_mechanism")
    for verb, option_names in (("needs", needed - options), ("excludes", options - needed)):
        if option_names:
            names_text = " and ".join(sorted(option_names))
            mechanism = str(config.sasl_mechanism)
            raise InvalidConfig(f"sasl_mechanism={mechanism!r} {verb} {names_text}")
    if not with_token and not all(getattr(config, name) for name in CREDENTIALS):
        raise InvalidConfig("sasl_plain_username and sasl_plain_password must not be empty")
    # PLAIN separates name and password by it (RFC 4616), and SCRAM has no escape for it (RFC 5802).
    if any("\0" in (getattr(config, name) or "") for name in CREDENTIALS):
        raise InvalidConfig("sasl_plain_username and sasl_plain_password must not contain NUL")
