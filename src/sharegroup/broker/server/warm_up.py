"""Imports what requests need soon after the start of `sharegroup serve`, in slices.

A request whose type is not prepared waits until its modules have been imported (`preparing`); of
the first heartbeat of a group these are sixty.  So all types of requests are prepared soon after
the start, in a step for each module, and requests are served between the slices (`slices`).

An embedded broker does none of this: a test imports only what it uses.
"""

from __future__ import annotations

from functools import partial

from sharegroup.broker.clock import sleep_ms
from sharegroup.broker.handler_contract import HandlerOf
from sharegroup.broker.parts import Parts
from sharegroup.broker.server.dispatch import Prepared, prepare_steps
from sharegroup.broker.server.preparing import import_in_steps
from sharegroup.steps import Steps
from sharegroup.wire.codec import encoder
from sharegroup.wire.codec.apis import APIS

AFTER_START_MS = 50
"""Pause after the start, in which clients that waited for the broker are served first."""

SHARE_REQUESTS = ((10, 2), (10, 6), (76, 1), (78, 1), (78, 2), (79, 1), (79, 2))
"""API key and version: FindCoordinator as librdkafka and Java send it, ShareGroupHeartbeat,
ShareFetch, ShareAcknowledge."""

LATER = ("sharegroup.storage.segment.timestamps", "sharegroup.storage.log.compaction")
"""Modules that no type of request needs at once."""


async def prepare_all(parts: Parts, handler_of: HandlerOf) -> None:
    """Prepare everything that requests need, then end."""
    await sleep_ms(parts.clock, AFTER_START_MS)
    await parts.slices.later(partial(prepare_all_steps, parts.prepared, handler_of), "warm-up")


def prepare_all_steps(prepared: Prepared, handler_of: HandlerOf) -> Steps[None]:
    """Import and compile everything, in steps of a module or of a message."""
    for api_key, version in SHARE_REQUESTS:
        yield from prepare_steps(prepared, handler_of, api_key, version)
    yield from _prepare_share_records()
    for api in APIS.values():
        yield from prepare_steps(prepared, handler_of, api.key, api.newest)
    for name in LATER:
        yield from import_in_steps(name)


def _prepare_share_records() -> Steps[None]:
    # Imported here, because Kafka's record classes would add 15 ms to the start.
    from sharegroup.wire.internal_topics.share_group_records import SHARE_GROUP_RECORDS
    from sharegroup.wire.internal_topics.share_state_records import (
        ShareSnapshotKey,
        ShareSnapshotValue,
    )

    for pair in (*SHARE_GROUP_RECORDS.values(), (ShareSnapshotKey, ShareSnapshotValue)):
        for cls in pair:
            encoder.prepare(cls)
            yield
