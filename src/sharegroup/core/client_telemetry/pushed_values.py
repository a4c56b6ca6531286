"""The last values of the metrics that clients pushed, within a limit of memory.

A counter that is pushed as increments is summed up here.  The values of an instance are replaced
piece by piece: a metric that is missing from a push keeps its value, because a push has only the
metrics that the client still has, and increments only of those that changed.  Values of an instance
that has been silent for several intervals are out of date, and are removed.

All values together are bounded.  When a push needs room, the values of the instances that have been
silent for longest are removed first.  A user with limited rights has a part of the room, and beyond
it makes room among its own instances.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from sharegroup.core.client_telemetry.subscriptions import ClientIdentity
from sharegroup.core.security.principal import Principal

TOTAL_BYTES_MAX = 4 * 1024 * 1024
INSTANCE_BYTES_MAX = 512 * 1024
"""Bytes of the values of all instances, and of one instance."""

SERIES_BYTES = 250
"""Memory of one value in bytes, without the text of its name and labels."""
INSTANCE_BYTES = 1_500
"""Memory of one instance in bytes, without its values."""

SILENT_INTERVALS = 3
SILENT_MS_MIN = 60_000
"""An instance is out of date after so many intervals, and not before this time."""


Labels = tuple[tuple[str, str], ...]


class PushedValue(Protocol):
    """One value of a push; its metric's name is as in OpenTelemetry, with dots."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Labels: ...
    @property
    def value(self) -> float: ...
    @property
    def is_counter(self) -> bool: ...
    @property
    def is_increment(self) -> bool: ...


class Series(NamedTuple):
    """The last value of a metric with these labels; names and labels are texts of the client."""

    name: str
    labels: Labels
    value: float
    is_counter: bool


def silent_from_ms(now_ms: int, *, interval_ms: int) -> int:
    """Return from when on an instance that pushes now is out of date, if it does not push again."""
    return now_ms + max(SILENT_MS_MIN, SILENT_INTERVALS * interval_ms)


class _Pushed:
    """The values of one instance."""

    __slots__ = ("client", "due_ms", "labels", "owner", "series", "size_bytes")

    def __init__(self, client: ClientIdentity, owner: Principal | None) -> None:
        self.client = client
        self.owner = owner
        self.due_ms = 0
        self.labels: Labels = ()
        self.series: dict[tuple[str, Labels], Series] = {}
        self.size_bytes = INSTANCE_BYTES


class PushedValues:
    """The last values of all client instances."""

    __slots__ = (
        "_instances",
        "_owned_bytes",
        "_total_bytes_max",
        "_user_bytes_max",
        "dropped_count",
        "size_bytes",
        "values_count",
    )

    def __init__(self, *, total_bytes_max: int = TOTAL_BYTES_MAX, user_percent: int = 100) -> None:
        """``user_percent`` is the part of one user with limited rights."""
        self._instances: OrderedDict[UUID, _Pushed] = OrderedDict()
        self._owned_bytes = Counter[Principal]()
        self._total_bytes_max = total_bytes_max
        self._user_bytes_max = total_bytes_max * user_percent // 100
        self.size_bytes = 0
        """The approximate memory of all values."""
        self.values_count = 0
        """Values that were pushed since the broker started."""
        self.dropped_count = 0
        """Values that were not kept, because an instance or all instances have too many."""

    def __len__(self) -> int:
        return len(self._instances)

    def put(
        self,
        instance_id: UUID,
        client: ClientIdentity,
        labels: Labels,
        values: Sequence[PushedValue],
        *,
        due_ms: int,
        owner: Principal | None = None,
    ) -> None:
        """Store some values of a push; ``labels`` are those of the client's resource.

        The values of the instance are out of date at ``due_ms`` (`silent_from_ms`).
        """
        pushed = self._instances.get(instance_id)
        if pushed is None:
            pushed = self._instances[instance_id] = _Pushed(client, owner)
            self._grow(pushed.owner, pushed.size_bytes)
        self._instances.move_to_end(instance_id)
        pushed.labels = labels
        pushed.due_ms = due_ms
        self.values_count += len(values)
        for value in values:
            self._put_value(pushed, value)
        self._make_room(instance_id, pushed.owner)

    def expire(self, *, now_ms: int) -> None:
        """Remove the instances that have been silent for too long."""
        for instance_id in [
            instance_id
            for instance_id, pushed in self._instances.items()
            if pushed.due_ms <= now_ms
        ]:
            self._remove(instance_id)

    def instances(self) -> Iterator[tuple[ClientIdentity, Labels]]:
        """Iterate over the clients with their labels, the one silent for longest first."""
        for pushed in list(self._instances.values()):
            yield pushed.client, pushed.labels

    def series(self) -> Iterator[tuple[ClientIdentity, list[Series]]]:
        """Iterate over the clients with their values; values may be pushed meanwhile."""
        for pushed in list(self._instances.values()):
            yield pushed.client, list(pushed.series.values())

    def _put_value(self, pushed: _Pushed, value: PushedValue) -> None:
        key = (value.name, value.labels)
        before = pushed.series.get(key)
        if before is None:
            size = SERIES_BYTES + len(value.name)
            size += sum(len(name) + len(text) for name, text in value.labels)
            if pushed.size_bytes + size > INSTANCE_BYTES_MAX:
                self.dropped_count += 1
                return
            pushed.size_bytes += size
            self._grow(pushed.owner, size)
        number = value.value
        if value.is_increment and before is not None:
            number += before.value
        pushed.series[key] = Series(value.name, value.labels, number, value.is_counter)

    def _remove(self, instance_id: UUID) -> None:
        removed = self._instances.pop(instance_id)
        self._grow(removed.owner, -removed.size_bytes)

    def _grow(self, owner: Principal | None, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        if owner is not None:
            self._owned_bytes[owner] += size_bytes
            if not self._owned_bytes[owner]:
                del self._owned_bytes[owner]

    def _make_room(self, instance_id: UUID, owner: Principal | None) -> None:
        """Remove others until the instance fits into its owner's part and into the total."""
        if owner is not None and self._owned_bytes[owner] > self._user_bytes_max:
            for other_id in [key for key, other in self._instances.items() if other.owner == owner]:
                # The instance itself comes last, because it was used last.
                if other_id == instance_id or self._owned_bytes[owner] <= self._user_bytes_max:
                    break
                self._remove(other_id)
        while self.size_bytes > self._total_bytes_max and len(self._instances) > 1:
            self._remove(next(iter(self._instances)))
