"""The public keys that sign tokens: a JSON Web Key Set from a file or a URL, kept up to date.

The set is read at start and then every ``sasl.oauthbearer.jwks.endpoint.refresh.ms``.  A token that
names an unknown key may be signed with a new one, so its login waits for another reading.  Peers
cannot cause many readings that way: there is one at a time, and a pause after each.

Reading runs in a thread, with limits on bytes and time.  While it fails, the last set is used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry

from sharegroup.broker.clock import Clock
from sharegroup.errors import InvalidConfig

log = logging.getLogger(__name__)

KEY = "sasl.oauthbearer.jwks.endpoint.url"

KEY_SET_BYTES_MAX = 256 * 1024
"""Maximum size of a key set."""

KEYS_MAX = 100
"""Maximum number of keys of a set."""

READ_MS_MAX = 10_000
"""Time in which a key set must be read."""

UNKNOWN_KEY_PAUSE_MS = 10_000
"""Time after a reading in which a token with an unknown key does not cause another."""

RSA_BITS_MIN = 2_048

_READ_BYTES = 16 * 1024

Key = Any
"""A key of joserfc, one of its four classes."""

_ALGORITHMS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA", "Ed25519"),
}
"""The algorithms of a key by its type and curve.  Shared secrets are left out, because a
holder who can verify with one can also sign."""

_PUBLIC = frozenset({"kty", "crv", "n", "e", "x", "y"})
"""The members of a key that are used; private ones are dropped."""

ALGORITHMS = frozenset(name for names in _ALGORITHMS.values() for name in names)
"""The algorithms that a token may be signed with."""


class KeySetUnreadable(Exception):
    """The key set could not be read, or is malformed; the text says why."""


class TokenKey(NamedTuple):
    """A public key with its id and the algorithms that it is for."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Key


class Refresh(NamedTuple):
    """How often the key set is read, and the pauses after a failure, in ms."""

    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int


class TokenKeys:
    """The keys of one key set."""

    __slots__ = ("_clock", "_due", "_failures", "_keys", "_read", "_read_ms", "_refresh", "_url",
                 "_waiters", "failed_count", "read_count")  # fmt: skip

    def __init__(
        self,
        url: str,
        clock: Clock,
        refresh: Refresh,
        *,
        read: Callable[[str], bytes] | None = None,
    ) -> None:
        self._url = url
        self._clock = clock
        self._refresh = refresh
        self._read = read or partial(read_key_set, clock)
        self._keys: tuple[TokenKey, ...] = ()
        self._due = asyncio.Event()
        self._waiters: asyncio.Future[None] | None = None
        """Resolved when the next reading ends; None if nobody waits for it."""
        self._read_ms: int | None = None
        """The end of the last reading; None before the first."""
        self._failures = 0
        self.read_count = 0
        """Readings that succeeded."""
        self.failed_count = 0
        """Readings that failed."""

    @property
    def key_count(self) -> int:
        """The number of keys in use."""
        return len(self._keys)

    def fitting(self, key_id: str | None, algorithm: str) -> list[Key]:
        """Return the keys that a token may be signed with; a token without an id may have any."""
        return [
            token_key.key
            for token_key in self._keys
            if algorithm in token_key.algorithms and key_id in (None, token_key.key_id)
        ]

    async def load(self) -> None:
        """Read the key set at start; raise InvalidConfig if a file cannot be read.

        A URL may be unreachable for a while, so the broker starts and `run` tries again.
        """
        await self._refresh_now()
        if self._failures and urlsplit(self._url).scheme == "file":
            raise InvalidConfig(f"{KEY}={self._url!r} is not readable; the log says why")

    async def run(self) -> None:
        """Read the key set whenever it is due, until cancelled."""
        while True:
            timer = self._clock.call_at_ms(self._clock.now_ms() + self._pause_ms(), self._due.set)
            try:
                await self._due.wait()
            finally:
                timer.cancel()
            await self._refresh_now()

    async def read_for_unknown_key(self) -> bool:
        """Wait for a new reading; return False if the last one was too recent for another."""
        now_ms = self._clock.now_ms()
        if self._waiters is None:
            if self._read_ms is not None and now_ms - self._read_ms < UNKNOWN_KEY_PAUSE_MS:
                return False
            self._waiters = asyncio.get_running_loop().create_future()
            self._due.set()
        # All logins wait for one future, which the end of one connection must not cancel.
        await asyncio.shield(self._waiters)
        return True

    def _pause_ms(self) -> int:
        if not self._failures:
            return self._refresh.refresh_ms
        # Limited, because the number of failures is not: a server may be gone for weeks.
        doubled = self._refresh.backoff_ms << min(self._failures - 1, 30)
        return max(1, min(doubled, self._refresh.backoff_max_ms))

    async def _refresh_now(self) -> None:
        self._due.clear()
        try:
            # In a thread: a slow server, or a set of many keys, must not hold the event loop.
            self._keys = await asyncio.to_thread(lambda: parse_key_set(self._read(self._url)))
        except KeySetUnreadable as error:
            self._failures += 1
            self.failed_count += 1
            log.warning(
                "event=token_keys_unreadable url=%r keys=%d failures=%d reason=%r action='tokens "
                "are verified with the keys of the last reading; make the key set readable'",
                self._url,
                len(self._keys),
                self._failures,
                str(error)[:300],
            )
        else:
            self._failures = 0
            self.read_count += 1
            log.info("event=token_keys_read url=%r keys=%d", self._url, len(self._keys))
        finally:
            self._read_ms = self._clock.now_ms()
            waiters, self._waiters = self._waiters, None
            if waiters is not None:
                waiters.set_result(None)


def check_key_set_url(url: str) -> None:
    """Raise InvalidConfig unless the URL names a file, or a host with HTTP or HTTPS."""
    parts = urlsplit(url)
    is_file = parts.scheme == "file" and parts.path and parts.netloc in ("", "localhost")
    if not is_file and not (parts.scheme in ("http", "https") and parts.hostname):
        raise InvalidConfig(
            f"{KEY} must be https://HOST/PATH, http://HOST/PATH or file:///PATH, not {url[:200]!r}"
        )


def read_key_set(clock: Clock, url: str) -> bytes:
    """Read a key set from a file or a URL; raise KeySetUnreadable."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with Path(unquote(parts.path)).open("rb") as file:
                content = file.read(KEY_SET_BYTES_MAX + 1)
        else:
            content = _fetched(clock, url)
    except (OSError, ValueError) as error:
        raise KeySetUnreadable(f"{type(error).__name__}: {error}") from error
    if len(content) > KEY_SET_BYTES_MAX:
        raise KeySetUnreadable(f"it has more than {KEY_SET_BYTES_MAX} bytes")
    return content


def parse_key_set(content: bytes) -> tuple[TokenKey, ...]:
    """Return the usable keys of a key set; raise KeySetUnreadable if it has none."""
    try:
        entries = json.loads(content)["keys"]
        assert isinstance(entries, list)
    except (ValueError, KeyError, TypeError, RecursionError, AssertionError):
        raise KeySetUnreadable('expected a JSON object with a list "keys"') from None
    if len(entries) > KEYS_MAX:
        raise KeySetUnreadable(f"expected at most {KEYS_MAX} keys, found {len(entries)}")
    keys = tuple(key for entry in entries if (key := _usable(entry)) is not None)
    if not keys:
        raise KeySetUnreadable(
            f"none of its {len(entries)} keys is a public key of RSA ({RSA_BITS_MIN} bits or more),"
            " EC or Ed25519 for signatures"
        )
    return keys


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, which could lead from HTTPS to a place that others can write to."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request, which makes the redirect an error."""


def _fetched(clock: Clock, url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    end_ms = clock.now_ms() + READ_MS_MAX
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310  Checked.
    parts: list[bytes] = []
    try:
        with opener.open(request, timeout=READ_MS_MAX / 2000) as answer:
            while sum(map(len, parts)) <= KEY_SET_BYTES_MAX:
                part = answer.read1(_READ_BYTES)
                if not part:
                    return b"".join(parts)
                parts.append(part)
                # The time-out of urllib is that of each wait, which a slow server never reaches.
                if clock.now_ms() > end_ms:
                    raise TimeoutError(f"not complete after {READ_MS_MAX} ms")
    except urllib.error.HTTPError as error:
        with error:
            place = error.headers.get("Location")
        if place is None:
            raise
        raise KeySetUnreadable(f"it redirects to {place[:200]!r}; set {KEY} to that URL") from error
    return b"".join(parts)


def _usable(entry: Any) -> TokenKey | None:
    """Return a public key for signatures, or None for other entries."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    kind, curve = str(entry.get("kty")), str(entry.get("crv", ""))
    algorithms = _ALGORITHMS.get((kind, curve if kind != "RSA" else ""), ())
    named = entry.get("alg")
    if named is not None:
        algorithms = tuple(name for name in algorithms if name == named)
    if not algorithms:
        return None
    key_id = entry.get("kid")
    # The modulus is in base64: each character is worth six bits.
    is_short = kind == "RSA" and len(str(entry.get("n")).rstrip("=")) * 6 < RSA_BITS_MIN
    if is_short or not isinstance(key_id, str | None):
        return None
    public = {name: value for name, value in entry.items() if name in _PUBLIC}
    try:
        key = JWKRegistry.import_key(public)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return TokenKey(key_id, algorithms, key)
