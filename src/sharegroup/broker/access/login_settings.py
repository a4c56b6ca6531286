"""What each listener accepts as a login, from the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from sharegroup.broker.access.jaas import parse_jaas, plain_users
from sharegroup.broker.access.logins import AcceptedLogins, Logins, PendingLogins
from sharegroup.broker.access.mechanisms import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    BearerExchange,
    Exchange,
    PlainExchange,
    ScramExchange,
)
from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.scram_credentials import ScramCredentials
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.listener_settings import listener_settings
from sharegroup.broker.configuration.listeners import Listener
from sharegroup.broker.configuration.sasl_config import SaslConfig
from sharegroup.errors import InvalidConfig
from sharegroup.installation import pip_install

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    # Its library is imported only by brokers that accept tokens.
    from sharegroup.broker.access.token_keys import TokenKeys


def logins_of(
    config: Config,
    listeners: Iterable[Listener],
    pending: PendingLogins,
    credentials: ScramCredentials,
    clock: Clock,
) -> Logins:
    """Return the logins of listeners with SASL; raise InvalidConfig for settings without sense."""
    keys: dict[tuple[str, int, int, int], TokenKeys] = {}
    accepted = {
        listener.name: _accepted(config, listener.name, credentials, clock, keys)
        for listener in listeners
    }
    return Logins(accepted, pending, tuple(keys.values()))


def _accepted(
    config: Config,
    listener: str,
    credentials: ScramCredentials,
    clock: Clock,
    keys: dict[tuple[str, int, int, int], TokenKeys],
) -> AcceptedLogins:
    own = listener_settings(config.sasl, config.given, listener)
    exchanges: dict[str, Callable[[], Exchange]] = {}
    session_ms: dict[str, int] = {}
    bytes_max = own.message_bytes_max
    for name in own.mechanisms:
        settings = listener_settings(own, config.given, f"{listener}.{name}")
        session_ms[name] = settings.session_ms
        jaas_key = f"listener.name.{listener.lower()}.{name.lower()}.sasl.jaas.config"
        if name == PLAIN:
            exchanges[name] = partial(PlainExchange, plain_users(jaas_key, settings.jaas or ""))
            continue
        if settings.jaas:
            parse_jaas(jaas_key, settings.jaas)
        if name in SCRAM:
            exchanges[name] = partial(ScramExchange, SCRAM[name], credentials)
        elif name == OAUTHBEARER:
            exchanges[name] = _bearer(settings, listener, clock, keys)
            bytes_max = settings.message_bytes_max
        else:
            raise InvalidConfig(
                f"sasl.enabled.mechanisms={','.join(own.mechanisms)!r} of the listener {listener}: "
                f"this broker does not have {name!r}; set it to some of {', '.join(MECHANISMS)}"
            )
    # The users of PLAIN and OAUTHBEARER are not in the catalog, so with them somebody can log in.
    if exchanges.keys() <= SCRAM.keys() and not credentials.count:
        _warn_without_users(config, listener, own.mechanisms)
    return AcceptedLogins(
        exchanges=exchanges,
        session_ms=session_ms,
        frame_bytes_max=bytes_max,
        login_ms=config.sasl.login_ms,
        failure_delay_ms=config.sasl.failure_delay_ms,
    )


def _warn_without_users(config: Config, listener: str, mechanisms: Iterable[str]) -> None:
    """Say how the first user is made, because nobody can log in to make it."""
    log.warning(
        "event=listener_without_users listener=%s mechanisms=%s reason='nobody can log in here; to "
        "add the first user, stop the broker and run: sharegroup users add NAME --data %s'",
        listener,
        ",".join(mechanisms),
        config.server.data_directory,
    )


def _bearer(
    settings: SaslConfig,
    listener: str,
    clock: Clock,
    keys: dict[tuple[str, int, int, int], TokenKeys],
) -> Callable[[], Exchange]:
    _check_token_settings(settings, listener)
    try:
        # Imported here, because the library takes 0.1 s, and it is an extra.
        from sharegroup.broker.access.token_keys import Refresh, TokenKeys, check_key_set_url
        from sharegroup.broker.access.tokens import TokenRules, TokenVerifier
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            f"OAUTHBEARER of the listener {listener} needs the package {error.name}; install it "
            f"with: {pip_install('oauth')}"
        ) from error

    url = settings.keys_url or ""
    check_key_set_url(url)
    refresh = Refresh(
        settings.keys_refresh_ms, settings.keys_backoff_ms, settings.keys_backoff_max_ms
    )
    # Listeners with the same key set share it, so it is read once.
    place = (url, *refresh)
    shared_keys = keys.get(place) or keys.setdefault(place, TokenKeys(url, clock, refresh))
    rules = TokenRules(
        issuer=settings.issuer,
        audiences=settings.audiences,
        clock_skew_ms=settings.clock_skew_seconds * 1000,
        scope_claim=settings.scope_claim,
        subject_claim=settings.subject_claim,
    )
    return partial(BearerExchange, TokenVerifier(rules, shared_keys, clock))


def _check_token_settings(settings: SaslConfig, listener: str) -> None:
    """Raise InvalidConfig unless tokens can be verified; the rules are Kafka's."""
    prefix = f"OAUTHBEARER of the listener {listener} needs"
    if not settings.keys_url:
        raise InvalidConfig(f"{prefix} sasl.oauthbearer.jwks.endpoint.url")
    if not (settings.issuer or settings.allow_any_issuer):
        raise InvalidConfig(
            f"{prefix} sasl.oauthbearer.expected.issuer; to accept tokens of every issuer, set "
            "sasl.oauthbearer.allow.unverified.issuer=true"
        )
    if not (settings.audiences or settings.allow_any_audience):
        raise InvalidConfig(
            f"{prefix} sasl.oauthbearer.expected.audience; to accept tokens for every audience, "
            "set sasl.oauthbearer.allow.unverified.audience=true"
        )
