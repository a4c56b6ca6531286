"""Records in hand, for tests of what looks at them."""

from __future__ import annotations

from typing import Any

from sharegroup.worker.records.story import NEW
from sharegroup.worker.running.in_hand import InHand
from tests.unit.worker.deliveries import FakeDelivery


def in_hand(offset: int = 0, *, key: bytes | None = None, **delivery: Any) -> InHand:
    nobody: Any = None
    one = InHand(nobody, FakeDelivery(offset=offset, key=key, **delivery), NEW, 0.0)
    one.key = key
    return one


def offsets(some: Any) -> list[int]:
    return [one.delivery.offset for one in some]
