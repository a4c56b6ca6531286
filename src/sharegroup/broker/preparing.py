"""Does in quiet moments what the first member of a share group would have to wait for.

Messages and handlers are imported, and readers and writers of messages compiled, when the first
request needs them: a start is short that way.  But a new share group needs many of them at once:
of the 53 ms of CPU from its first request to its first record 48 go there.  So they are
prepared soon after the start, a piece at a time; a request that comes meanwhile waits for one
piece at most.
"""

from __future__ import annotations

from importlib import import_module

from sharegroup.broker.clock import Clock, sleep_ms
from sharegroup.broker.dispatch import prepare
from sharegroup.wire import encoder

AFTER_START_MS = 200
"""Whoever waited for the broker to start is served first."""

PAUSE_MS = 10
"""Between two pieces, of which the longest take as long."""

REQUESTS = ((10, 2), (10, 6), (76, 1), (78, 1), (78, 2), (79, 1), (79, 2))
"""API key and version: FindCoordinator, as librdkafka and Java speak it, ShareGroupHeartbeat,
ShareFetch, ShareAcknowledge."""


async def prepare_for_share_groups(clock: Clock) -> None:
    """Prepare everything, then end."""
    await sleep_ms(clock, AFTER_START_MS)
    import_module("sharegroup.broker.groups.share_group_records")
    for api_key, version in REQUESTS:
        await sleep_ms(clock, PAUSE_MS)
        prepare(api_key, version)
    # Not before: a start that finds no share groups does without the classes of their records.
    from sharegroup.wire.share_group_records import SHARE_GROUP_RECORDS
    from sharegroup.wire.share_state_records import ShareSnapshotKey, ShareSnapshotValue

    for key, value in (*SHARE_GROUP_RECORDS.values(), (ShareSnapshotKey, ShareSnapshotValue)):
        await sleep_ms(clock, PAUSE_MS)
        encoder.prepare(key)
        encoder.prepare(value)
