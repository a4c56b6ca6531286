"""The SCRAM credentials of users: a part of the catalog.

A command returns an `Event`, and only `replay` changes the credentials, as in `catalog`.  Passwords
are not stored: a credential verifies a proof of a password (`core.security.scram`).

A login of an unknown user must look like that of a known one.  Its salt is derived from the name
with a key that is stored here, so it is the same each time, also after a restart.
"""

from __future__ import annotations

import base64
import hmac
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.protocol_enums import ScramMechanism

if TYPE_CHECKING:
    # Imported with the first credential.
    from sharegroup.core.security.scram import ScramCredential

DECOY_SALT_BYTES = 24
DECOY_KEY_BYTES = 32
_DIGEST = "sha512"


class Upsertion(NamedTuple):
    """A credential to be created or replaced."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential


class Removal(NamedTuple):
    """A credential to be removed."""

    user: str
    mechanism: ScramMechanism


class ScramCredentials:
    """The credentials by user and mechanism, changed only by `replay`."""

    kinds = frozenset({"scram_credentials"})

    __slots__ = ("_by_user", "_decoy_key", "_shapes", "count")

    def __init__(self) -> None:
        self._by_user: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        self._decoy_key = b""
        """The key of the salts of unknown users; empty until the first credential."""
        self._shapes: dict[ScramMechanism, Counter[tuple[int, int]]] = {
            mechanism: Counter() for mechanism in ScramMechanism
        }
        """How often each length of a salt occurs together with each number of iterations."""
        self.count = 0
        """The number of credentials."""

    @property
    def users(self) -> Iterable[str]:
        """The names of all users that have a credential."""
        return self._by_user.keys()

    def __len__(self) -> int:
        return len(self._by_user) + bool(self._decoy_key)

    def of_user(self, user: str) -> Mapping[ScramMechanism, ScramCredential]:
        """Return the credentials of a user by mechanism, empty if there are none."""
        return self._by_user.get(user, {})

    def find(self, mechanism: ScramMechanism, user: str) -> tuple[ScramCredential, bool]:
        """Return the credential of a user and True, or a decoy and False."""
        found = self.of_user(user).get(mechanism)
        decoy = self._decoy(mechanism, user)  # Made for every user, to take the same time.
        return (decoy, False) if found is None else (found, True)

    def changed(
        self, upserted: Iterable[Upsertion], removed: Iterable[Removal], *, decoy_key: bytes
    ) -> Event:
        """Return the event of changes that happen together.

        ``decoy_key`` is random; it is used if this is the first credential.
        """
        event: Event = {
            "event": "scram_credentials",
            "upserted": [_written(*upsertion) for upsertion in upserted],
            "removed": [[user, int(mechanism)] for user, mechanism in removed],
        }
        if not self._decoy_key:
            event["decoy_key"] = _base64(decoy_key)
        return event

    def events(self) -> Iterator[Event]:
        """Yield the shortest sequence of events that leads to these credentials."""
        if self._decoy_key:
            yield {"event": "scram_credentials", "decoy_key": _base64(self._decoy_key)}
        for user, credentials in self._by_user.items():
            yield {
                "event": "scram_credentials",
                "upserted": [_written(user, *entry) for entry in credentials.items()],
            }

    def replay(self, event: Event) -> None:
        """Apply changes that happened together."""
        if "decoy_key" in event:
            self._decoy_key = base64.b64decode(event["decoy_key"])
        for user, number in event.get("removed", ()):
            self._remove(user, ScramMechanism(number))
        for entry in event.get("upserted", ()):
            self._put(*_read(entry))

    def _put(self, user: str, mechanism: ScramMechanism, credential: ScramCredential) -> None:
        self._remove(user, mechanism)
        self._by_user.setdefault(user, {})[mechanism] = credential
        self._shapes[mechanism][_shape(credential)] += 1
        self.count += 1

    def _remove(self, user: str, mechanism: ScramMechanism) -> None:
        credentials = self._by_user.get(user, {})
        removed = credentials.pop(mechanism, None)
        if removed is None:
            return
        self.count -= 1
        shapes, shape = self._shapes[mechanism], _shape(removed)
        shapes[shape] -= 1
        if not shapes[shape]:
            del shapes[shape]
        if not credentials:
            del self._by_user[user]

    def _decoy(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """Return a credential that nobody has, shaped like one of the real ones."""
        # Imported with the first login.
        from sharegroup.core.security.scram import ITERATIONS_MIN, ScramCredential

        text = f"{mechanism.sasl_name},{user}".encode()
        random = hmac.digest(self._decoy_key, b"shape" + text, _DIGEST)
        # Sorted, because the order in which credentials were made is another one after a restart.
        shapes = sorted(self._shapes[mechanism]) or [(DECOY_SALT_BYTES, ITERATIONS_MIN)]
        salt_bytes, iterations = shapes[int.from_bytes(random[:8]) % len(shapes)]
        salt = b""
        while len(salt) < salt_bytes:
            salt += hmac.digest(self._decoy_key, b"salt" + salt + text, _DIGEST)
        return ScramCredential(salt[:salt_bytes], random, random, iterations)


def _shape(credential: ScramCredential) -> tuple[int, int]:
    return len(credential.salt), credential.iterations


def _written(user: str, mechanism: ScramMechanism, credential: ScramCredential) -> Event:
    return {
        "user": user,
        "mechanism": int(mechanism),
        "salt": _base64(credential.salt),
        "stored_key": _base64(credential.stored_key),
        "server_key": _base64(credential.server_key),
        "iterations": credential.iterations,
    }


def _read(entry: Event) -> Upsertion:
    # Imported with the first credential.
    from sharegroup.core.security.scram import ScramCredential

    credential = ScramCredential(
        salt=base64.b64decode(entry["salt"]),
        stored_key=base64.b64decode(entry["stored_key"]),
        server_key=base64.b64decode(entry["server_key"]),
        iterations=entry["iterations"],
    )
    return Upsertion(entry["user"], ScramMechanism(entry["mechanism"]), credential)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
