"""Client instances: the clients that ask for subscriptions and push metrics (KIP-714).

An instance has an id, which the broker gives it with its first answer.  It may ask for its
subscription, or push, once in each interval.  The id of a subscription is computed from its
contents, so a broker that has forgotten an instance still recognizes it.

The number of instances is bounded.  The one that has not been heard of for longest is forgotten
first; for its client that changes nothing but the limit of its rate.  A user with limited rights
has a part of them, and beyond it forgets one of its own.

A client that no subscription selects has nothing to push, so its pushes are refused.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from uuid import UUID

from sharegroup.core.client_telemetry.subscriptions import RequestedMetrics
from sharegroup.core.security.principal import Principal
from sharegroup.errors import (
    InvalidRequest,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)

INSTANCES_MAX = 2_000
"""Client instances that are remembered."""

INSTANCE_BYTES = 1_000
"""Memory of one instance in bytes, apart from the names of metrics, which instances share."""

NEVER_MS = -(2**62)
NEW_SUBSCRIPTION_ERRORS = (UnknownSubscriptionId, UnsupportedCompressionType)
"""After these errors a client asks for its subscription again, without waiting."""

COMPRESSION_TYPES = (4, 3, 1, 2)
"""The accepted compression types, the preferred one first: zstd, lz4, gzip and snappy."""


@dataclass(frozen=True, slots=True)
class Push:
    """The part of a PushTelemetry request that is checked before its metrics are read."""

    subscription_id: int
    compression_type: int
    is_terminating: bool
    metrics_bytes: int


class _Instance:
    """One client, with the subscription that it has now."""

    __slots__ = (
        "asked_ms",
        "has_terminated",
        "last_error",
        "may_push_early",
        "owner",
        "pushed_ms",
        "requested",
        "subscription_id",
        "version",
    )

    def __init__(
        self,
        requested: RequestedMetrics,
        subscription_id: int,
        version: int,
        owner: Principal | None,
    ) -> None:
        self.owner = owner
        """The user whose client it is; None if the user's rights are not limited."""
        self.requested = requested
        self.subscription_id = subscription_id
        self.version = version
        self.asked_ms = self.pushed_ms = NEVER_MS
        self.has_terminated = False
        self.may_push_early = False
        self.last_error: KafkaError | None = None


class ClientInstances:
    """The client instances of one broker."""

    __slots__ = (
        "_instances",
        "_instances_max",
        "_owned",
        "_user_max",
        "throttled_count",
        "unknown_count",
    )

    def __init__(self, *, instances_max: int = INSTANCES_MAX, user_percent: int = 100) -> None:
        """``user_percent`` is the part of one user with limited rights."""
        self._instances: OrderedDict[UUID, _Instance] = OrderedDict()
        self._owned = Counter[Principal]()
        self._instances_max = instances_max
        self._user_max = max(1, instances_max * user_percent // 100)
        self.throttled_count = 0
        """Requests that came before their interval was over."""
        self.unknown_count = 0
        """Pushes for a subscription that the client does not have any more."""

    def __len__(self) -> int:
        return len(self._instances)

    def knows(self, instance_id: UUID, version: int) -> bool:
        """Return whether the instance has the subscription of this version of the settings."""
        instance = self._instances.get(instance_id)
        return instance is not None and instance.version == version

    def put(
        self,
        instance_id: UUID,
        requested: RequestedMetrics,
        subscription_id: int,
        version: int,
        owner: Principal | None = None,
    ) -> None:
        """Remember an instance, new or with another subscription; ask `knows` before."""
        # First, so that an instance does not count twice against the limits below.
        self.forget(instance_id)
        if owner is not None:
            if self._owned[owner] >= self._user_max:
                own = (key for key, instance in self._instances.items() if instance.owner == owner)
                # The one that was heard of longest ago: `_used` moves an instance to the end.
                self.forget(next(own))
            self._owned[owner] += 1
        self._instances[instance_id] = _Instance(requested, subscription_id, version, owner)
        if len(self._instances) > self._instances_max:
            self.forget(next(iter(self._instances)))

    def requested(self, instance_id: UUID) -> RequestedMetrics:
        """Return the contents of a known instance's subscription."""
        return self._instances[instance_id].requested

    def forget(self, instance_id: UUID) -> None:
        """Forget an instance, if it is known."""
        instance = self._instances.pop(instance_id, None)
        if instance is None or instance.owner is None:
            return
        self._owned[instance.owner] -= 1
        if not self._owned[instance.owner]:
            del self._owned[instance.owner]

    def subscription_of(self, instance_id: UUID, *, now_ms: int) -> tuple[int, RequestedMetrics]:
        """Return the id and contents of a known instance's subscription.

        Raises ThrottlingQuotaExceeded if it asks again before its interval is over.
        """
        instance = self._used(instance_id)
        last_ms = max(instance.asked_ms, instance.pushed_ms)
        is_early = now_ms - last_ms < instance.requested.interval_ms
        if is_early and not isinstance(instance.last_error, NEW_SUBSCRIPTION_ERRORS):
            raise self._throttled(instance_id, instance)
        instance.asked_ms = now_ms
        instance.may_push_early = True
        instance.last_error = None
        return instance.subscription_id, instance.requested

    def check_push(self, instance_id: UUID, push: Push, *, now_ms: int, bytes_max: int) -> None:
        """Count a push of a known instance; raise an error if it is not accepted."""
        instance = self._used(instance_id)
        try:
            self._check_push(instance_id, instance, push, now_ms=now_ms, bytes_max=bytes_max)
        except KafkaError as error:
            # With its traceback it would keep the frames of the request in memory.
            instance.last_error = error.with_traceback(None)
            raise
        finally:
            # Also if the push was refused, as in Kafka: a client announces its end once.
            instance.has_terminated = push.is_terminating
        instance.last_error = None

    def _check_push(
        self, instance_id: UUID, instance: _Instance, push: Push, *, now_ms: int, bytes_max: int
    ) -> None:
        if instance.has_terminated:
            raise InvalidRequest(f"client instance {instance_id} has announced its end before")
        # After a request for the subscription a push is never early: clients spread their pushes.
        if instance.may_push_early or now_ms - instance.pushed_ms >= instance.requested.interval_ms:
            instance.pushed_ms = now_ms
            instance.may_push_early = False
        elif not push.is_terminating:
            raise self._throttled(instance_id, instance)
        if not instance.requested.metrics:
            self.unknown_count += 1
            raise UnknownSubscriptionId(
                f"client instance {instance_id}: no subscription selects this client, so it has no "
                "metrics to push"
            )
        if push.subscription_id != instance.subscription_id:
            self.unknown_count += 1
            raise UnknownSubscriptionId(
                f"client instance {instance_id}: the subscription is {instance.subscription_id}, "
                f"not {push.subscription_id}"
            )
        if push.compression_type not in (0, *COMPRESSION_TYPES):
            raise UnsupportedCompressionType(
                f"client instance {instance_id}: compression type {push.compression_type} is not "
                f"known; accepted are {', '.join(map(str, COMPRESSION_TYPES))} and 0 for none"
            )
        if push.metrics_bytes > bytes_max:
            raise TelemetryTooLarge(
                f"client instance {instance_id}: {push.metrics_bytes} bytes of metrics, at most "
                f"{bytes_max} are accepted"
            )

    def _used(self, instance_id: UUID) -> _Instance:
        self._instances.move_to_end(instance_id)
        return self._instances[instance_id]

    def _throttled(self, instance_id: UUID, instance: _Instance) -> ThrottlingQuotaExceeded:
        self.throttled_count += 1
        return ThrottlingQuotaExceeded(
            f"client instance {instance_id} may ask or push once in "
            f"{instance.requested.interval_ms} ms"
        )
