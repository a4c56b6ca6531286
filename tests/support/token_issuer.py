"""An issuer of tokens for tests: keys, their public key set, and tokens with any claims."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

ISSUER = "https://issuer.example"
AUDIENCE = "kafka.example"

Key = ECKey | OKPKey | RSAKey

_REGISTRY = jws.JWSRegistry(
    algorithms=["RS256", "PS256", "ES256", "ES384", "Ed25519"], strict_check_header=False
)


def key_of(key_id: str, kind: str = "RS256") -> Key:
    """Return the private key of this id and kind, the same each time."""
    return _key_of(key_id, kind)


@cache
def _key_of(key_id: str, kind: str) -> Key:
    if kind in ("RS256", "PS256"):
        return RSAKey.generate_key(2048, {"kid": key_id})
    if kind == "Ed25519":
        return OKPKey.generate_key("Ed25519", {"kid": key_id})
    return ECKey.generate_key({"ES256": "P-256", "ES384": "P-384"}[kind], {"kid": key_id})


def key_set(*keys: Key, **members: str) -> bytes:
    """Return the public key set of these keys; ``members`` are added to each."""
    entries = [{**key.as_dict(private=False), **members} for key in keys]
    return json.dumps({"keys": entries}).encode()


def claims_of(subject: str, now_seconds: float, *, valid_seconds: float = 60) -> dict[str, Any]:
    """Return the claims of a token that is valid now."""
    return {
        "sub": subject,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": now_seconds,
        "exp": now_seconds + valid_seconds,
    }


def signed(claims: Mapping[str, Any], key: Key, algorithm: str = "RS256", **header: object) -> str:
    """Return a token with these claims, which names the key that signs it."""
    named = {"alg": algorithm, "kid": key.kid, **header}
    named = {name: value for name, value in named.items() if value is not None}
    payload = json.dumps(dict(claims))  # In ASCII, so that it may have any character.
    return jws.serialize_compact(named, payload, key, registry=_REGISTRY)


def unsigned(claims: Mapping[str, Any], **header: object) -> str:
    """Return a token with the header ``alg`` none, or another one, and an empty signature."""
    parts = [json.dumps({"alg": "none", **header}).encode(), json.dumps(dict(claims)).encode()]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."
