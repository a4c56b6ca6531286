"""Tokens of OAUTHBEARER: which are accepted, and how forged ones are refused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from joserfc.errors import SecurityWarning
from joserfc.jwk import RSAKey

from sharegroup.broker.access.token_keys import (
    KEYS_MAX,
    UNKNOWN_KEY_PAUSE_MS,
    KeySetUnreadable,
    Refresh,
    TokenKeys,
    check_key_set_url,
    parse_key_set,
)
from sharegroup.broker.access.tokens import TokenRules, TokenVerifier, VerifiedToken
from sharegroup.core.security.login import LoginRefused, UnknownKey
from sharegroup.errors import InvalidConfig
from sharegroup.testing.virtual_time import ManualClock
from tests.support.limits import HANGING_SECONDS
from tests.support.token_issuer import (
    AUDIENCE,
    ISSUER,
    claims_of,
    key_of,
    key_set,
    signed,
    unsigned,
)

REFRESH = Refresh(refresh_ms=3_600_000, backoff_ms=100, backoff_max_ms=10_000)
RULES = TokenRules(issuer=ISSUER, audiences=(AUDIENCE, "other"), clock_skew_ms=30_000)


def verifier(
    content: bytes | None = None, rules: TokenRules = RULES
) -> tuple[ManualClock, TokenVerifier]:
    """Return a verifier with the keys of a set; by default one of each kind."""
    if content is None:
        kinds = ("RS256", "ES256", "ES384", "Ed25519")
        content = key_set(*(key_of(kind, kind) for kind in kinds))
    clock = ManualClock()

    async def loaded() -> TokenKeys:
        keys = TokenKeys("https://issuer/keys", clock, REFRESH, read=lambda _: content)
        await keys.load()
        return keys

    return clock, TokenVerifier(rules, asyncio.run(loaded()), clock)


def valid(clock: ManualClock, **changed: Any) -> dict[str, Any]:
    """Return valid claims with changes; None removes a claim."""
    claims = {**claims_of("alice", clock.wall_ms() / 1000), **changed}
    return {name: value for name, value in claims.items() if value is not None}


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "Ed25519"])
def test_tokens_with_a_known_key_are_accepted(algorithm: str) -> None:
    clock, tokens = verifier()
    key = key_of("RS256" if algorithm == "PS256" else algorithm, algorithm.replace("PS", "RS"))
    for token in (
        signed(valid(clock), key, algorithm),
        signed(valid(clock), key, algorithm, kid=None),
    ):
        assert tokens.verify(token) == VerifiedToken("alice", clock.wall_ms() + 60_000)


def test_headers_and_claims_of_other_kinds_are_ignored() -> None:
    clock, tokens = verifier()
    claims = valid(clock, aud=["x", "other"], scope=["a", "b"], groups={"x": 1})
    token = signed(claims, key_of("RS256"), typ="at+jwt", x5t="thumbprint")
    assert tokens.verify(token).subject == "alice"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"iss": "https://issuer.example/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "kafka"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [{"x": 1}]}, "audience"),
        ({"aud": None}, "audience"),
        ({"exp": None}, "'exp'"),
        ({"exp": "soon"}, "'exp'"),
        ({"exp": True}, "'exp'"),
        ({"exp": -1}, "'exp'"),
        ({"exp": 1e300}, "'exp'"),
        ({"exp": 1.0}, "expired"),
        ({"iat": None}, "'iat'"),
        ({"nbf": 2**40}, "not valid yet"),
        ({"sub": None}, "'sub'"),
        ({"sub": " "}, "'sub'"),
        ({"sub": ["alice"]}, "'sub'"),
        ({"sub": "a" * 1025}, "longer than 1024"),
        ({"sub": "alice\ud800"}, "surrogate"),
        ({"scope": ["a", "a"]}, "scope"),
        ({"scope": ""}, "scope"),
    ],
)
def test_other_claims_are_refused(changed: dict[str, Any], reason: str) -> None:
    clock, tokens = verifier()
    with pytest.raises(LoginRefused, match=reason):
        tokens.verify(signed(valid(clock, **changed), key_of("RS256")))


@pytest.mark.parametrize(
    ("subject", "user"),
    [(" alice\t\n", "alice"), ("\u00a0alice", "\u00a0alice"), ("alice\u2003", "alice\u2003")],
)
def test_subject_is_trimmed_like_in_java(subject: str, user: str) -> None:
    """Otherwise somebody who registers as a name with a special space would be that user."""
    clock, tokens = verifier()
    assert tokens.verify(signed(valid(clock, sub=subject), key_of("RS256"))).subject == user


def test_clock_skew_is_allowed_at_both_ends() -> None:
    clock, tokens = verifier()
    now = clock.wall_ms() / 1000
    assert tokens.verify(signed(valid(clock, exp=now - 29, nbf=now + 29), key_of("RS256")))
    late = tokens.verify(signed(valid(clock, exp=now - 29), key_of("RS256")))
    assert late.expires_wall_ms == clock.wall_ms() + 1_000, "a lifetime of 0 would have no end"
    with pytest.raises(LoginRefused, match="expired"):
        tokens.verify(signed(valid(clock, exp=now - 30), key_of("RS256")))
    with pytest.raises(LoginRefused, match="not valid yet"):
        tokens.verify(signed(valid(clock, nbf=now + 31), key_of("RS256")))


def test_unset_rules_accept_every_issuer_and_audience_and_name_other_claims() -> None:
    rules = TokenRules(issuer=None, audiences=(), clock_skew_ms=0, subject_claim="client_id")
    clock, tokens = verifier(rules=rules)
    token = signed(valid(clock, iss="x", aud=None, client_id="app"), key_of("RS256"))
    assert tokens.verify(token).subject == "app"


def test_an_unsigned_token_is_refused() -> None:
    clock, tokens = verifier()
    for algorithm in ("none", "None", "NONE", "", None, ["RS256"], "HS256", "RS1", "dir"):
        with pytest.raises(LoginRefused, match="algorithm"):
            tokens.verify(unsigned(valid(clock), alg=algorithm, kid="RS256"))


def test_a_public_key_is_no_secret() -> None:
    """A token signed with HS256 and the text of the public key as the secret is refused."""
    clock, tokens = verifier()
    secret = key_of("RS256").as_pem(private=False)
    body = unsigned(valid(clock), alg="HS256", kid="RS256").rstrip(".")
    proof = base64.urlsafe_b64encode(hmac.digest(secret, body.encode(), hashlib.sha256))
    with pytest.raises(LoginRefused, match="algorithm 'HS256'"):
        tokens.verify(f"{body}.{proof.rstrip(b'=').decode()}")


def test_another_key_with_the_same_id_is_refused() -> None:
    clock, tokens = verifier()
    forger = RSAKey.generate_key(2048, {"kid": "RS256"})
    with pytest.raises(LoginRefused, match="signature"):
        tokens.verify(signed(valid(clock), forger))


def test_changed_claims_are_refused() -> None:
    clock, tokens = verifier()
    header, _, proof = signed(valid(clock), key_of("RS256")).split(".")
    other = unsigned(valid(clock, sub="admin")).split(".")[1]
    with pytest.raises(LoginRefused, match="signature"):
        tokens.verify(f"{header}.{other}.{proof}")


@pytest.mark.parametrize(
    "token",
    ["", "x", "a.b", "a.b.c", "..", "." * 1000, "a.b.c.d.e", "W10.W10.W10",
     base64.urlsafe_b64encode(b"[" * 6000).decode() + ".e30.e30", "e30." + "A" * 500_000 + ".e30"],
)  # fmt: skip
def test_malformed_tokens_are_refused(token: str) -> None:
    _, tokens = verifier()
    with pytest.raises(LoginRefused):
        tokens.verify(token)


def test_a_token_with_an_unknown_key_is_neither_accepted_nor_refused() -> None:
    clock, tokens = verifier()
    with pytest.raises(UnknownKey):
        tokens.verify(signed(valid(clock), key_of("new")))
    # The id is known, but belongs to a key of another kind.
    with pytest.raises(UnknownKey):
        tokens.verify(signed(valid(clock), key_of("new"), kid="ES256"))
    with pytest.raises(LoginRefused, match="sensible length"):
        tokens.verify(unsigned(valid(clock), alg="RS256", kid="k" * 1001))


def test_a_key_set_has_usable_public_keys_only() -> None:
    rsa, secret = key_of("RS256"), {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"}
    with pytest.warns(SecurityWarning):
        small = RSAKey.generate_key(1024, {"kid": "small"})
    entries = [
        rsa.as_dict(private=True),
        {**key_of("ES256", "ES256").as_dict(private=False), "use": "enc"},
        {**key_of("ES384", "ES384").as_dict(private=False), "alg": "ES256"},
        small.as_dict(private=False),
        secret,
        {"kty": "RSA", "kid": "broken", "n": "x"},
        {"kid": "nothing"},
        "text",
    ]
    keys = parse_key_set(json.dumps({"keys": entries}).encode())
    assert [key.key_id for key in keys] == ["RS256"]
    assert not keys[0].key.is_private


def test_the_algorithm_of_a_key_is_the_only_one() -> None:
    clock, tokens = verifier(key_set(key_of("RS256"), alg="RS256"))
    assert tokens.verify(signed(valid(clock), key_of("RS256")))
    with pytest.raises(UnknownKey):
        tokens.verify(signed(valid(clock), key_of("RS256"), "PS256"))


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b"\xff", b"[" * 100_000,
     json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode()],
)  # fmt: skip
def test_other_contents_are_no_key_set(content: bytes) -> None:
    with pytest.raises(KeySetUnreadable):
        parse_key_set(content)


@pytest.mark.parametrize(
    "url", ["", "keys.json", "ftp://host/keys", "https://", "file://host/keys", "file:", "data:x"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match=r"jwks\.endpoint\.url"):
        check_key_set_url(url)


class Source:
    """A key set whose readings are counted and may fail."""

    def __init__(self) -> None:
        self.content: bytes | None = key_set(key_of("RS256"))
        self.readings = 0

    def read(self, url: str) -> bytes:
        self.readings += 1
        if self.content is None:
            raise KeySetUnreadable(f"{url} is away")
        return self.content


async def until_read(keys: TokenKeys, readings: int) -> None:
    """Wait until so many readings have ended, and the next is scheduled."""
    async with asyncio.timeout(HANGING_SECONDS):
        while keys.read_count + keys.failed_count < readings:
            await asyncio.sleep(0)
    await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def unknown_key_is_read_once_and_then_not_for_a_while() -> None:
    clock, source = ManualClock(), Source()
    keys = TokenKeys("https://issuer/keys", clock, REFRESH, read=source.read)
    await keys.load()
    task = asyncio.create_task(keys.run())
    assert not await keys.read_for_unknown_key()  # It was read at this moment.
    clock.advance(UNKNOWN_KEY_PAUSE_MS / 1000)
    source.content = key_set(key_of("RS256"), key_of("new"))
    results = await asyncio.gather(*(keys.read_for_unknown_key() for _ in range(100)))
    assert all(results)
    assert source.readings == 2
    assert keys.fitting("new", "RS256")
    assert not await keys.read_for_unknown_key()
    assert source.readings == 2
    task.cancel()


def test_peers_cannot_cause_many_readings() -> None:
    asyncio.run(unknown_key_is_read_once_and_then_not_for_a_while())


async def failed_readings_keep_the_keys_and_are_repeated() -> None:
    clock, source = ManualClock(), Source()
    keys = TokenKeys("https://issuer/keys", clock, REFRESH, read=source.read)
    await keys.load()
    task = asyncio.create_task(keys.run())
    await turns()
    source.content = None
    for readings, pause_ms in ((2, 3_600_000), (3, 100), (4, 200), (5, 400)):
        clock.advance((pause_ms - 1) / 1000)
        await turns()
        assert source.readings == readings - 1
        clock.advance(0.001)
        await until_read(keys, readings)
    assert keys.fitting("RS256", "RS256")
    source.content = key_set(key_of("new"))
    clock.advance(0.8)
    await until_read(keys, 6)
    assert (keys.fitting("RS256", "RS256"), len(keys.fitting("new", "RS256"))) == ([], 1)
    assert (keys.read_count, keys.failed_count) == (2, 4)
    task.cancel()


def test_failed_readings_keep_the_keys_and_are_repeated() -> None:
    asyncio.run(failed_readings_keep_the_keys_and_are_repeated())


def test_a_missing_file_ends_the_start_and_an_unreachable_url_does_not() -> None:
    async def load(url: str) -> None:
        source = Source()
        source.content = None
        await TokenKeys(url, ManualClock(), REFRESH, read=source.read).load()

    asyncio.run(load("https://issuer/keys"))
    with pytest.raises(InvalidConfig, match="not readable"):
        asyncio.run(load("file:///keys.json"))
