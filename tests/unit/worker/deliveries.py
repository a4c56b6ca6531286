"""A delivery for tests of what looks at one: it remembers how it was settled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sharegroup.worker.ports import Header


class FakeDelivery:
    """A `sharegroup.worker.ports.DeliveredRecord`."""

    def __init__(
        self,
        value: bytes | None = b"{}",
        *,
        topic: str = "orders",
        partition: int = 2,
        offset: int = 7,
        key: bytes | None = b"customer-7",
        headers: Sequence[Header] = (),
        delivery_count: int = 1,
        deadline: float = 30.0,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = 1_767_225_600_000
        self.key = key
        self.value = value
        self.headers = headers
        self.delivery_count = delivery_count
        self.deadline = deadline
        self.is_lost = False
        self.settled: list[str] = []

    def accept(self) -> None:
        self.settled.append("accept")

    def release(self, *, delay: timedelta | None = None) -> None:
        self.settled.append("release" if delay is None else f"release after {delay}")

    def reject(self) -> None:
        self.settled.append("reject")

    def renew(self) -> None:
        self.settled.append("renew")
