"""The store: names that are reserved, confirmed or free, and values that expire.

                 reserve                      confirm
    free  ----------------->  reserved  ----------------->  confirmed
     ^                           |                              |
     '--- release, or the lease lapses ---'--- the time to keep it ends

Kafka cannot look up a record by a name, so `send(unique=...)` keeps the names that it has sent in a
store.  `stores.memory`, `stores.sqlite`, `stores.postgres` and `stores.redis` implement it; one
contract test runs for all of them (`tests/integration/worker/stores`).

A token is the identity of one reservation.  Its owner chooses it, so a call whose answer was lost
can be repeated: it finds its own reservation.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol, runtime_checkable

from sharegroup.errors import InvalidConfig
from sharegroup.installation import pip_install

NAME_BYTES_MAX = 2_000
"""PostgreSQL's indexes hold entries of up to 2,704 bytes."""
VALUE_BYTES_MAX = 1024 * 1024
NO_TRANSACTION = (
    "{}.connection: no transaction of it runs here; expected a handler with once_by=..., in an App "
    "with this store, and in tests `app.test(store=...)`"
)


class StoreUnavailable(ConnectionError):
    """The store did not answer, or refused a call.

    A handler that raises it is retried as after any other ConnectionError.
    """


@dataclass(frozen=True, slots=True)
class Reserved:
    """The name was free and is reserved now, or was reserved by the same token."""


@dataclass(frozen=True, slots=True)
class Held:
    """Another token has reserved the name and has not confirmed it."""

    seconds_left: float
    """The time after which its lease lapses."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The name is confirmed, with the value that was given then."""

    value: bytes


Reservation = Reserved | Held | Confirmed


class Store(Protocol):
    """Names with leases, and values that expire.

    Each method raises StoreUnavailable if the store cannot be reached or refuses, and ValueError
    for a name or a value above its limit.
    """

    async def reserve(self, name: str, token: str, *, lease_seconds: float) -> Reservation:
        """Reserve a name for a time; for the same token again, extend its lease."""

    async def confirm(self, name: str, token: str, value: bytes, *, keep_seconds: float) -> bool:
        """Confirm a reservation for a time.

        False if another token has the name by now, because the lease has lapsed.  A name that is
        free is confirmed.
        """

    async def release(self, name: str, token: str) -> None:
        """Free a name that this token has reserved; nothing happens if it has not."""

    async def put(self, name: str, value: bytes, *, keep_seconds: float) -> None:
        """Keep a value by its name for a time, in place of an earlier one."""

    async def get(self, name: str) -> bytes | None:
        """Return the value that was put or confirmed; None if there is none, or no longer."""

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""


@runtime_checkable
class TransactionalStore(Store, Protocol):
    """A store that confirms a name in the transaction in which a handler works."""

    def once(self, name: str, *, keep_seconds: float) -> AbstractAsyncContextManager[bool]:
        """A transaction that confirms a name; its value is False if the name was confirmed before.

        It is committed at the end of the block, and rolled back after an exception.  A block with
        the same name waits until this one has ended.
        """


def check_installed(module: str, extra: str, store: str) -> None:
    """Raise InvalidConfig unless the client of a store's server is installed."""
    if find_spec(module) is None:
        raise InvalidConfig(
            f"{store}: the package {module} is not installed; install it: {pip_install(extra)}"
        )


def check_name(name: str) -> None:
    """Raise ValueError unless the name can be stored: neither empty, nor with NUL, nor too long."""
    size = len(name.encode())  # Raises UnicodeEncodeError, a ValueError, for a lone surrogate.
    if not 0 < size <= NAME_BYTES_MAX or "\0" in name:
        raise ValueError(
            f"store: name {name!r:.80} of {size} bytes; expected 1 to {NAME_BYTES_MAX} bytes "
            f"without NUL"
        )


def check_value(name: str, value: bytes) -> None:
    """Raise ValueError if the value is too long."""
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(
            f"store: the value of {name!r:.80} has {len(value)} bytes; expected up to "
            f"{VALUE_BYTES_MAX}; keep larger values elsewhere, and their address here"
        )
