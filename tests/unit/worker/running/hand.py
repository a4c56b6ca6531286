"""Records in hand, for tests of what looks at them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sharegroup.dead_letters.story import NEW
from sharegroup.worker.decisions.tiers import TIERS
from sharegroup.worker.events import Events
from sharegroup.worker.parts import ShareGroupLimits
from sharegroup.worker.ports import WorkerClock
from sharegroup.worker.running.group_parts import GroupParts, RecordEvents
from sharegroup.worker.running.taken_record import TakenRecord
from tests.unit.worker.deliveries import FakeDelivery


def in_hand(offset: int = 0, *, key: bytes | None = None, **delivery: Any) -> TakenRecord:
    no_route: Any = None
    record = TakenRecord(no_route, FakeDelivery(offset=offset, key=key, **delivery), NEW, 0.0)
    record.key = key
    return record


def offsets(some: Any) -> list[int]:
    return [held.delivery.offset for held in some]


def group_parts(clock: WorkerClock) -> GroupParts:
    """Parts of a group that takes and writes nothing."""
    parts: Any = SimpleNamespace(clock=clock, outbox=None)
    events = RecordEvents("billing", Events())
    return GroupParts(events, (), parts, limits=ShareGroupLimits(), tiers=TIERS)
