"""Prepares the modules and codecs for share groups soon after the start, in quiet moments.

Messages and handlers are imported, and their decoders and encoders compiled, when the first request
needs them; that keeps a start short.  But a new share group needs many of them at once: they take
48 of the 53 ms of CPU from its first request to its first record.  So they are prepared soon after
the start, one piece at a time.  A request that comes meanwhile waits for one piece at most.
"""

from __future__ import annotations

from sharegroup.broker.clock import Clock, sleep_ms
from sharegroup.broker.dispatch import prepare
from sharegroup.broker.handler_contract import HandlerOf
from sharegroup.wire import encoder

AFTER_START_MS = 200
"""Pause after the start, in which clients that waited for the broker are served first."""

PAUSE_MS = 10
"""Pause between two pieces; the longest pieces take as long."""

REQUESTS = ((10, 2), (10, 6), (76, 1), (78, 1), (78, 2), (79, 1), (79, 2))
"""API key and version: FindCoordinator as librdkafka and Java send it, ShareGroupHeartbeat,
ShareFetch, ShareAcknowledge."""


async def prepare_for_share_groups(clock: Clock, handler_of: HandlerOf) -> None:
    """Prepare everything that a share group needs, then end."""
    await sleep_ms(clock, AFTER_START_MS)
    # Imported here, because Kafka's record classes would add 15 ms to the start.
    import sharegroup.broker.groups.share_group_records  # noqa: F401  The first heartbeat needs it.
    from sharegroup.wire.share_group_records import SHARE_GROUP_RECORDS
    from sharegroup.wire.share_state_records import ShareSnapshotKey, ShareSnapshotValue

    for api_key, version in REQUESTS:
        await sleep_ms(clock, PAUSE_MS)
        prepare(handler_of, api_key, version)
    for key, value in (*SHARE_GROUP_RECORDS.values(), (ShareSnapshotKey, ShareSnapshotValue)):
        await sleep_ms(clock, PAUSE_MS)
        encoder.prepare(key)
        encoder.prepare(value)
