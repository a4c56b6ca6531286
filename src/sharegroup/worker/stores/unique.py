"""Writes a record once for each name: reserves the name, writes the record, confirms the name.

    reserved by us       write, then confirm with the record's place; release after a refusal
    held by another      wait until it is confirmed or free, or its lease lapses
    confirmed            return the place of the record that was written then

A process that dies before it confirms leaves a lease, which lapses.  So no record is lost; it is
written twice only if the process dies, the store is away, or the broker's answer is lost, between
the write and the confirmation (ADR 0050).
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import assert_never
from urllib.parse import quote

from sharegroup.errors import (
    AuthorizationException,
    InvalidConfig,
    InvalidRecord,
    InvalidTopic,
    MessageTooLarge,
    PolicyViolation,
    RecordBatchTooLarge,
)
from sharegroup.worker.ports import WorkerClock, WrittenRecord
from sharegroup.worker.stores.store import (
    Confirmed,
    Held,
    Reserved,
    Store,
    StoreUnavailable,
)

LEASE_SECONDS = 30.0
EXTENSIONS = 3
"""A lease is extended this often in its duration, as long as the record is being written."""
POLL_SECONDS_MIN = 0.1
POLL_SECONDS_MAX = 2.0
UNIQUE_BYTES_MAX = 500
REFUSALS = (
    *(ValueError, TypeError, AuthorizationException, InvalidConfig, InvalidRecord, InvalidTopic),
    *(MessageTooLarge, PolicyViolation, RecordBatchTooLarge),
)
"""Errors after which the record is certainly not written, and not by a later retry either."""
_UNESCAPED = " !#$&'()*+,:;<=>?@[]^`{|}"
"""Printable characters that a name contains as they are; the others follow a percent sign."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SentBefore:
    """The place of the record that was sent before with the same ``unique`` name."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


def unique_name(group: str, topic: str, unique: str) -> str:
    """The store's name for ``unique``, which is scoped to a group and a topic."""
    given: object = unique  # At run time any value is accepted; only type checkers see the type.
    if not isinstance(given, str) or not 0 < len(given.encode()) <= UNIQUE_BYTES_MAX:
        raise ValueError(
            f"send: unique={unique!r:.80}; expected a text of 1 to {UNIQUE_BYTES_MAX} bytes"
        )
    return f"unique/{group}/{topic}/{quote(given, safe=_UNESCAPED)}"


async def write_once(
    store: Store,
    clock: WorkerClock,
    name: str,
    write: Callable[[], Awaitable[WrittenRecord]],
    *,
    keep_seconds: float,
) -> WrittenRecord:
    """Write a record unless one was written under this name, and return where it is."""
    token = secrets.token_hex(16)
    wait_seconds = POLL_SECONDS_MIN
    while True:
        found = await store.reserve(name, token, lease_seconds=LEASE_SECONDS)
        match found:
            case Reserved():
                return await _write_reserved(
                    _Lease(store, clock, name, token), write, keep_seconds=keep_seconds
                )
            case Confirmed():
                return _place_of(name, found.value)
            case Held():
                # Not forever: another process extends a lease only while its producer waits.
                await clock.sleep_until(clock.now() + min(wait_seconds, found.seconds_left))
                wait_seconds = min(wait_seconds * 2, POLL_SECONDS_MAX)
            case _:
                assert_never(found)


@dataclass(frozen=True, slots=True)
class _Lease:
    store: Store
    clock: WorkerClock
    name: str
    token: str

    @asynccontextmanager
    async def extended(self) -> AsyncIterator[None]:
        """Extend the lease until the end of the block."""
        extending = asyncio.ensure_future(self._extend())
        try:
            yield
        finally:
            extending.cancel()
            await asyncio.wait((extending,))
            if not extending.cancelled() and (error := extending.exception()) is not None:
                # Nothing is lost: the record may be written twice if the lease has lapsed.
                self.warn("lease not extended", error)

    async def _extend(self) -> None:
        found: object = Reserved()
        while found == Reserved():
            await self.clock.sleep_until(self.clock.now() + LEASE_SECONDS / EXTENSIONS)
            found = await self.store.reserve(self.name, self.token, lease_seconds=LEASE_SECONDS)

    def warn(self, why: str, error: BaseException | None = None) -> None:
        action = "the record is written; a send with this name may write it again"
        log.warning(
            "event=unique.unconfirmed name=%r why=%r error=%r action=%r",
            *(self.name, why, None if error is None else str(error), action),
        )


async def _write_reserved(
    lease: _Lease, write: Callable[[], Awaitable[WrittenRecord]], *, keep_seconds: float
) -> WrittenRecord:
    try:
        async with lease.extended():
            written = await write()
    except REFUSALS as error:
        # Not after a cancellation, or a time that is over: the record may be written already, or
        # the producer may still write it.  So the lease stays, and lapses.
        try:
            await lease.store.release(lease.name, lease.token)
        except StoreUnavailable as unavailable:
            error.add_note(f"The name is held for up to {LEASE_SECONDS:.0f} s: {unavailable}")
        raise
    try:
        value = _value_of(written)
        is_ours = await lease.store.confirm(
            lease.name, lease.token, value, keep_seconds=keep_seconds
        )
    except StoreUnavailable as unavailable:
        # The record is durable, which is what `send` promises; an error would have it sent again.
        lease.warn("the store is unavailable", unavailable)
    else:
        if not is_ours:
            lease.warn("another send has taken the name, because the lease has lapsed")
    return written


def _value_of(written: WrittenRecord) -> bytes:
    place = (written.topic, written.partition, written.offset, written.timestamp_ms)
    return json.dumps(place).encode()


def _place_of(name: str, value: bytes) -> SentBefore:
    try:
        topic, partition, offset, timestamp_ms = json.loads(value)
        place = SentBefore(str(topic), int(partition), int(offset), int(timestamp_ms))
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreUnavailable(
            f"send: the store has {value!r:.80} for the name {name!r}; expected the place of a "
            f"record, which is written there by send(unique=...) alone: delete the name"
        ) from error
    return place
