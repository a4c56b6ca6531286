"""Configuration of SASL: Kafka's keys that have an effect here, and limits before a login.

Most keys may be set for all listeners, for one, or for one mechanism of one listener:
``listener.name.external.plain.sasl.jaas.config`` (`listener_settings`).
"""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import ConfigPart, ConfigType, key


class SaslConfig(ConfigPart):
    """Mechanisms, tokens and sessions of listeners with the protocol SASL_PLAINTEXT or SASL_SSL."""

    mechanisms: tuple[str, ...] = key(
        "sasl.enabled.mechanisms",
        ("GSSAPI",),
        "SASL mechanisms that clients may use: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, "
        "`OAUTHBEARER`. A listener with SASL needs one of them; `GSSAPI` (Kerberos) is not served.",
        fixed=True,
        per_listener=True,
    )
    jaas: str | None = key(
        "sasl.jaas.config",
        None,
        "Users of PLAIN, for one listener: `listener.name.<listener>.plain.sasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="...";`.',
        kind=ConfigType.PASSWORD,
        fixed=True,
        per_listener=True,
    )
    session_ms: int = key(
        "connections.max.reauth.ms",
        0,
        "Time after which a client must log in again on its connection (KIP-368); 0: no limit.",
        kind=ConfigType.LONG,
        fixed=True,
        per_listener=True,
    )
    message_bytes_max: int = key(
        "sasl.server.max.receive.size",
        524_288,
        "Maximum size of a message with a token. All other messages before a login may have 4 KiB "
        "at most.",
        low=1,
        fixed=True,
        per_listener=True,
    )
    failure_delay_ms: int = key(
        "connection.failed.authentication.delay.ms",
        100,
        "Time after which a failed login is answered and its connection closed.",
        low=0,
        fixed=True,
    )
    login_ms: int = key(
        "sharegroup.login.timeout.ms",
        10_000,
        "Time after which a connection is closed if its login is not complete.",
        low=100,
        high=600_000,
        fixed=True,
    )
    unauthenticated_max: int = key(
        "sharegroup.unauthenticated.connections.max",
        1_000,
        "Maximum number of connections to listeners with SASL that are not logged in. At the "
        "limit, a new connection replaces the oldest one of the address with the most of them.",
        low=1,
        fixed=True,
    )
    unauthenticated_per_ip_max: int = key(
        "sharegroup.unauthenticated.connections.per.ip.max",
        250,
        "The same limit for one address; a new connection replaces the oldest one of its address.",
        low=1,
        fixed=True,
    )
    scram_credentials_max: int = key(
        "sharegroup.scram.credentials.max",
        10_000,
        "Maximum number of SCRAM credentials of all users.",
        low=0,
        fixed=True,
    )
    keys_url: str | None = key(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "Key set that verifies tokens of OAUTHBEARER: `https://HOST/PATH`, or `file:///PATH`.",
        fixed=True,
        per_listener=True,
    )
    keys_refresh_ms: int = key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "Time after which the key set is read again. A token with an unknown key causes a reading "
        "at once, but not within 10 s of the last.",
        kind=ConfigType.LONG,
        low=1,
        fixed=True,
        per_listener=True,
    )
    keys_backoff_ms: int = key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "Pause after the key set could not be read; it doubles with each failure.",
        kind=ConfigType.LONG,
        low=0,
        fixed=True,
        per_listener=True,
    )
    keys_backoff_max_ms: int = key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        "Longest pause after the key set could not be read.",
        kind=ConfigType.LONG,
        low=0,
        fixed=True,
        per_listener=True,
    )
    issuer: str | None = key(
        "sasl.oauthbearer.expected.issuer",
        None,
        "Issuer of tokens (`iss`); required with a key set, unless "
        "`sasl.oauthbearer.allow.unverified.issuer` is set.",
        fixed=True,
        per_listener=True,
    )
    audiences: tuple[str, ...] = key(
        "sasl.oauthbearer.expected.audience",
        (),
        "Audiences of tokens (`aud`), of which a token must name one; required with a key set, "
        "unless `sasl.oauthbearer.allow.unverified.audience` is set.",
        fixed=True,
        per_listener=True,
    )
    allow_any_issuer: bool = key(
        "sasl.oauthbearer.allow.unverified.issuer",
        False,
        "Accept tokens of every issuer, if no issuer is expected.",
        fixed=True,
        per_listener=True,
    )
    allow_any_audience: bool = key(
        "sasl.oauthbearer.allow.unverified.audience",
        False,
        "Accept tokens for every audience, if no audience is expected.",
        fixed=True,
        per_listener=True,
    )
    clock_skew_seconds: int = key(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "Difference allowed between the clocks of this broker and of the issuer of tokens.",
        low=0,
        fixed=True,
        per_listener=True,
    )
    scope_claim: str = key(
        "sasl.oauthbearer.scope.claim.name",
        "scope",
        "Claim of a token with its scopes; they are checked for their form only.",
        fixed=True,
        per_listener=True,
    )
    subject_claim: str = key(
        "sasl.oauthbearer.sub.claim.name",
        "sub",
        "Claim of a token with the name of the user.",
        fixed=True,
        per_listener=True,
    )
