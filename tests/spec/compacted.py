"""A compacted topic of which each batch can be a segment of its own, and what is left of it."""

from __future__ import annotations

import time

from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from tests.spec.messages import Topic
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for

COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "segment_ms": "1000",
}
MINUTE_MS = 60_000


class Compacted:
    """A topic in which each batch of keys is a segment's last: the next one is a minute later."""

    def __init__(self, scene: Scene, **configs: str) -> None:
        self.scene = scene
        self.topic: Topic = scene.topic(**COMPACTED, **configs)
        self._now_ms = int(time.time() * 1000)
        self._at_ms = self._now_ms - 30 * MINUTE_MS

    def write(
        self, keys: str, value: bytes | None = b"v", *, minutes_ago: int | None = None
    ) -> None:
        """One batch, in a segment that is closed by the next."""
        self._at_ms += MINUTE_MS
        if minutes_ago is not None:
            self._at_ms = self._now_ms - minutes_ago * MINUTE_MS
        records = [SimpleRecord(key.encode(), value, self._at_ms) for key in keys]
        self.scene.produce_batch(self.topic, encode_batch(records))

    def until_left(self, *offsets: int) -> None:
        """Wait until compaction has left just these records."""
        self.scene.peer.checkpoint()

        def left() -> list[int]:
            start = self.scene.offset(self.topic, -2)
            found, position, end = [], start, self.scene.offset(self.topic)
            while position < end:
                records = decode_records(self.scene.fetch_bytes(self.topic, position))
                fresh = [record.offset for record in records if record.offset >= position]
                if not fresh:
                    break
                found += fresh
                position = fresh[-1] + 1
            return found

        wait_for(lambda: left() == list(offsets), f"records {offsets} alone")
