"""Verifies the tokens of OAUTHBEARER: JSON Web Tokens (RFC 7519) with a signature.

A token is accepted if it is signed with a key of the key set and an algorithm of that key, has the
expected issuer and audience, is valid now, and names a subject.  ``none`` and shared secrets are no
algorithms here, so a token cannot choose to be unsigned, or to be signed with a public key as if it
were a secret.  Checks and defaults are those of Kafka's BrokerJwtValidator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from joserfc import jws
from joserfc.errors import JoseError

from sharegroup.broker.access.token_keys import ALGORITHMS, TokenKeys
from sharegroup.broker.clock import Clock
from sharegroup.core.security.login import LoginRefused, UnknownKey

HEADER_BYTES_MAX = 8 * 1024
"""Maximum size of a token's header, which may contain certificates."""

KEYS_TRIED_MAX = 4
"""Number of keys that are tried for a token that names none."""

SUBJECT_BYTES_MAX = 1_024

SPACE = "".join(map(chr, range(0x21)))
"""What Java's ``trim`` removes from both ends of a subject.  Python's ``strip`` removes more, so
two subjects could become the same user."""

KEY_ID_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must claim."""

    issuer: str | None
    """None accepts every issuer."""
    audiences: tuple[str, ...]
    """One of them must be named; empty accepts every audience."""
    clock_skew_ms: int
    scope_claim: str = "scope"
    subject_claim: str = "sub"


class VerifiedToken(NamedTuple):
    """What a verified token says."""

    subject: str
    expires_wall_ms: int


class TokenVerifier:
    """Verifies tokens by the rules of one listener."""

    __slots__ = ("_clock", "_registry", "_rules", "keys")

    def __init__(self, rules: TokenRules, keys: TokenKeys, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self.keys = keys
        self._registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._registry.max_header_length = HEADER_BYTES_MAX

    def verify(self, token: str) -> VerifiedToken:
        """Return what the token says; raise LoginRefused if it is not accepted.

        Raises UnknownKey if the token may be signed with a key that a newer key set has.
        """
        try:
            claims = self._claims(token)
        except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            # The texts of the library do not quote the token.
            raise LoginRefused(f"the token is malformed or not signed: {_named(error)}") from None
        self._check_times(claims)
        self._check_addressees(claims)
        self._check_scopes(claims.get(self._rules.scope_claim))
        subject = claims.get(self._rules.subject_claim)
        if not isinstance(subject, str) or not (subject := subject.strip(SPACE)):
            raise LoginRefused(f"the token has no claim {self._rules.subject_claim!r}")
        # JSON can escape half of a pair, which UTF-8 cannot encode.
        if any("\ud800" <= character <= "\udfff" for character in subject):
            raise LoginRefused("the token's subject has half of a surrogate pair")
        if len(subject.encode()) > SUBJECT_BYTES_MAX:
            raise LoginRefused(f"the token's subject is longer than {SUBJECT_BYTES_MAX} bytes")
        expires_ms = _wall_ms(claims, "exp")
        if expires_ms <= self._clock.wall_ms():
            # It is accepted because clocks differ, so its session needs that time, too: a lifetime
            # of 0 would mean that it has no end.
            expires_ms += self._rules.clock_skew_ms
        return VerifiedToken(subject, expires_ms)

    def _claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token whose signature is right."""
        signed = jws.extract_compact(token.encode(), None, self._registry)
        header = signed.headers()
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise LoginRefused(f"the token has the algorithm {str(algorithm)[:20]!r}")
        if not isinstance(key_id, str | None) or len(key_id or "") > KEY_ID_CHARACTERS_MAX:
            raise LoginRefused("the id of the token's key is not a text of a sensible length")
        keys = self.keys.fitting(key_id, algorithm)
        if not keys:
            raise UnknownKey(f"no key fits the token: kid={(key_id or '')[:80]!r} alg={algorithm}")
        if not any(
            jws.validate_compact(signed, key, None, self._registry) for key in keys[:KEYS_TRIED_MAX]
        ):
            raise LoginRefused("the signature of the token is wrong")
        claims = json.loads(signed.payload or b"")
        if not isinstance(claims, dict):
            raise LoginRefused("the token has no claims")
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now_ms, skew_ms = self._clock.wall_ms(), self._rules.clock_skew_ms
        if now_ms - skew_ms >= _wall_ms(claims, "exp"):
            raise LoginRefused("the token has expired")
        # It must be there, as for Kafka's `BrokerJwtValidator`; nothing is compared with it.
        _wall_ms(claims, "iat")
        if "nbf" in claims and _wall_ms(claims, "nbf") - skew_ms > now_ms:
            raise LoginRefused("the token is not valid yet")

    def _check_addressees(self, claims: Mapping[str, Any]) -> None:
        rules = self._rules
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise LoginRefused(
                f"the token has the issuer {str(claims.get('iss'))[:200]!r}, expected "
                f"{rules.issuer!r}"
            )
        if rules.audiences:
            named = claims.get("aud")
            audiences = named if isinstance(named, list) else [named]
            if not any(audience in rules.audiences for audience in audiences):
                raise LoginRefused(
                    f"the token has the audience {str(named)[:200]!r}, expected one of "
                    f"{','.join(rules.audiences)!r}"
                )

    def _check_scopes(self, scopes: object) -> None:
        """Raise LoginRefused for empty and repeated scopes; Kafka uses them for nothing else."""
        listed = scopes if isinstance(scopes, list) else [scopes] if isinstance(scopes, str) else []
        texts = [scope.strip(SPACE) if isinstance(scope, str) else "" for scope in listed]
        if not all(texts) or len(set(texts)) < len(texts):
            raise LoginRefused(f"the claim {self._rules.scope_claim!r} has empty or equal scopes")


def _wall_ms(claims: Mapping[str, Any], name: str) -> int:
    """Return a time of the token in ms since 1970; raise LoginRefused if there is none."""
    seconds = claims.get(name)
    if (
        not isinstance(seconds, int | float)
        or isinstance(seconds, bool)
        or not 0 <= seconds < 2**43
    ):
        raise LoginRefused(f"the token has no claim {name!r} with a time in seconds")
    return int(seconds * 1000)


def _named(error: Exception) -> str:
    return str(getattr(error, "error", "") or type(error).__name__)
