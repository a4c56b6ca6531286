"""Client quotas in effect: measures what clients use, and says how long they must pause.

Handlers and `dispatch` ask here only while `Quotas.is_on`, that is while a quota is set.  A client
that is over a quota gets its answer at once, with a throttle time, and the broker reads nothing
from its connection for that time (KIP-219).  `Connection` does that when `Peer.throttled_until_ms`
is set.

- Bytes of Produce requests count when the request has arrived.  They are written in any case.
- A fetch of a client that is over its quota returns no records and locks none.  A fetch within the
  quota returns at most the bytes that the client has left, and at least one batch.  Kafka reads the
  records first and drops them if they are too many; here no record is locked in vain.
- Time on the event loop counts as the percentage of one second.  There is one loop, so all clients
  together have 100.
- Partitions that are created and deleted are counted by a token bucket (KIP-599).
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.clock import Clock
from sharegroup.broker.configuration.quota_config import QuotaConfig
from sharegroup.core.quotas.entities import ClientQuotas, Limit, QuotaKey
from sharegroup.core.quotas.meters import MeterKey, Meters, Rate, TokenBucket, Windows
from sharegroup.core.security.principal import Principal, canonical_address
from sharegroup.errors import ThrottlingQuotaExceeded

THROTTLE_MS_MAX = 3_600_000
"""A throttle time is never longer.  Only a quota far below the size of a batch leads to it."""

LIMITS_KEPT_MAX = 10_000
"""Maximum number of clients whose limits are kept; then all are looked up again."""

CLIENT_ID_CHARACTERS_MAX = 249
"""Client ids up to this length are kept, longer ones only as digests: clients choose them, and ids
of 32 KB would take hundreds of megabytes."""

PRODUCE, FETCH, REQUEST, MUTATION = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)

Meter: TypeAlias = Rate | TokenBucket


class Client(Protocol):
    """The sender of a request, as far as quotas are concerned; a `RequestContext` is one."""

    @property
    def peer(self) -> Peer: ...

    @property
    def client_id(self) -> str: ...

    @property
    def limited_user(self) -> Principal | None:
        """The user who may hold a part of what all users share; None if it may hold everything."""


class ThrottleCounters:
    """What one kind of quota has done since the broker started."""

    __slots__ = ("count", "milliseconds")

    def __init__(self) -> None:
        self.count = 0
        """Requests that were answered with a throttle time, or connections that were refused."""
        self.milliseconds = 0
        """The sum of their throttle times."""


class Quotas:
    """The quotas of all clients of one broker."""

    __slots__ = (
        "_buckets",
        "_clock",
        "_connections",
        "_kept",
        "_limits",
        "_limits_connections",
        "_mutation_windows",
        "_rates",
        "_windows",
        "counters",
        "is_on",
    )

    def __init__(
        self, limits: ClientQuotas, config: QuotaConfig, clock: Clock, *, user_percent: int = 100
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._windows = Windows(config.windows, config.window_seconds * 1000)
        self._mutation_windows = Windows(
            config.mutation_windows, config.mutation_window_seconds * 1000
        )
        self._rates = Meters(Rate, count_max=config.meters_max, user_percent=user_percent)
        self._buckets = Meters(TokenBucket, count_max=config.meters_max, user_percent=user_percent)
        # Peers without authentication must not use up the meters of others.
        self._connections = Meters(Rate, count_max=config.meters_max)
        self._kept: dict[MeterKey, Limit | None] = {}
        self.counters = {key: ThrottleCounters() for key in QuotaKey}
        self.is_on = False
        """Whether a user or a client id has a quota; otherwise nobody needs to ask."""
        self._limits_connections = False
        self.changed()

    def changed(self) -> None:
        """Apply the limits that the catalog has now; what clients have used stays counted."""
        in_use = self._limits.in_use
        self._kept.clear()
        self.is_on = bool(in_use - {QuotaKey.CONNECTION_CREATION_RATE})
        self._limits_connections = QuotaKey.CONNECTION_CREATION_RATE in in_use

    @property
    def meter_count(self) -> int:
        """The number of clients and quotas whose use is counted separately."""
        return len(self._rates) + len(self._buckets) + len(self._connections)

    @property
    def user_refused_count(self) -> int:
        """How often a client had to share the limit of its user, who has made too many meters."""
        return self._rates.total.refused_count + self._buckets.total.refused_count

    @property
    def shared_meter_count(self) -> int:
        """How often a client had to share a limit because there are too many clients."""
        meters = (self._rates, self._buckets, self._connections)
        return sum(every.shared_count for every in meters)

    def produced(self, client: Client, size: int) -> int:
        """Count the bytes of a Produce request; return its throttle time in milliseconds."""
        return self._use(PRODUCE, client, size, THROTTLE_MS_MAX)

    def fetch_throttle_ms(self, client: Client) -> int:
        """Return the throttle time of a fetch that must return no records; 0 if it may."""
        return self._use(FETCH, client, 0, THROTTLE_MS_MAX)

    def fetch_bytes_max(self, client: Client, bytes_max: int) -> int:
        """Return how many of ``bytes_max`` bytes a fetch may return; at least 1, for one batch."""
        limit = self._limit_of(FETCH, client)
        if limit is None:
            return bytes_max
        rate = self._rate(FETCH, limit, client)
        room = rate.room(limit.value, self._windows, self._clock.now_ms())
        return min(bytes_max, max(1, int(room)))

    def fetched(self, client: Client, size: int) -> int:
        """Count the bytes of a fetch's answer; return its throttle time in milliseconds."""
        return self._use(FETCH, client, size, THROTTLE_MS_MAX)

    def worked(self, client: Client, seconds: float) -> None:
        """Count the time for which a request held the event loop; its answer is not delayed."""
        limit = self._limit_of(REQUEST, client)
        if limit is not None:
            rate = self._rate(REQUEST, limit, client)
            rate.record(seconds * 100, self._windows, self._clock.now_ms())

    def request_throttle_ms(self, client: Client) -> int:
        """Return the throttle time for the time that earlier requests took, at most one window."""
        return self._use(REQUEST, client, 0, self._windows.window_ms)

    def mutations(self, client: Client, *, is_strict: bool) -> Mutations:
        """Return the changes that one request makes; older clients do not know strict quotas."""
        return Mutations(self, client, is_strict=is_strict)

    def mutate(self, client: Client, partitions: int, *, is_strict: bool) -> int:
        """Count partitions that are created or deleted; return the throttle time.

        Nothing is counted if the quota is strict and used up already.
        """
        limit = self._limit_of(MUTATION, client)
        if limit is None:
            return 0
        windows, now_ms = self._mutation_windows, self._clock.now_ms()
        bucket = self._buckets.of(_meter_key(MUTATION, limit), self._is_idle, client.limited_user)
        # KIP-599: a strict quota refuses a change only if earlier ones have used it up, so that a
        # single change may be larger than the quota.
        throttle_ms = bucket.throttle_ms(limit.value, windows, now_ms) if is_strict else 0
        if not throttle_ms:
            bucket.record(partitions, limit.value, windows, now_ms)
            if not is_strict:
                throttle_ms = bucket.throttle_ms(limit.value, windows, now_ms)
        return self._throttle(MUTATION, client, throttle_ms)

    def admits_connection(self, host: str) -> bool:
        """Count a new connection of an address; return False if it has opened too many."""
        if not self._limits_connections:
            return True
        address = canonical_address(host) or host
        limit = self._limits.address_limit(address)
        if limit is None:
            return True
        key = QuotaKey.CONNECTION_CREATION_RATE
        rate = self._connections.of(MeterKey(key, address, ""), self._is_idle)
        now_ms = self._clock.now_ms()
        rate.record(1, self._windows, now_ms)
        throttle_ms = rate.throttle_ms(limit, self._windows, now_ms)
        if not throttle_ms:
            return True
        # A refused connection does not count (`ConnectionQuotas` in Kafka): otherwise a client that
        # tries again and again would never get in.
        rate.record(-1, self._windows, now_ms)
        self._count(key, min(throttle_ms, self._windows.window_ms))
        return False

    def _use(self, key: QuotaKey, client: Client, amount: float, throttle_ms_max: int) -> int:
        """Count a use of a rate; return the throttle time, and note it for the connection."""
        limit = self._limit_of(key, client)
        if limit is None:
            return 0
        rate, now_ms = self._rate(key, limit, client), self._clock.now_ms()
        if amount:
            rate.record(amount, self._windows, now_ms)
        throttle_ms = rate.throttle_ms(limit.value, self._windows, now_ms)
        return self._throttle(key, client, min(throttle_ms, throttle_ms_max))

    def _throttle(self, key: QuotaKey, client: Client, throttle_ms: int) -> int:
        """Note a throttle time for the connection, and return it."""
        if throttle_ms <= 0:
            return 0
        throttle_ms = min(throttle_ms, THROTTLE_MS_MAX)
        peer, until_ms = client.peer, self._clock.now_ms() + throttle_ms
        # Several quotas may throttle one connection; the longest time counts (KIP-219).
        peer.throttled_until_ms = max(peer.throttled_until_ms, until_ms)
        self._count(key, throttle_ms)
        return throttle_ms

    def _count(self, key: QuotaKey, throttle_ms: int) -> None:
        counters = self.counters[key]
        counters.count += 1
        counters.milliseconds += throttle_ms

    def _limit_of(self, key: QuotaKey, client: Client) -> Limit | None:
        if key not in self._limits.in_use:
            return None
        meter_key = MeterKey(key, client.peer.principal.name, client.client_id)
        if len(meter_key.client_id) > CLIENT_ID_CHARACTERS_MAX:
            return self._limits.limit_of(*meter_key)
        try:
            return self._kept[meter_key]
        except KeyError:
            if len(self._kept) >= LIMITS_KEPT_MAX:
                self._kept.clear()
            limit = self._kept[meter_key] = self._limits.limit_of(*meter_key)
            return limit

    def _rate(self, key: QuotaKey, limit: Limit, client: Client) -> Rate:
        # By the limit and not by the client: a user's limit without a client id is one rate for all
        # its client ids.
        return self._rates.of(_meter_key(key, limit), self._is_idle, client.limited_user)

    def _is_idle(self, key: MeterKey, meter: Meter) -> bool:
        """Return whether a meter equals one that was never used."""
        now_ms = self._clock.now_ms()
        if isinstance(meter, Rate):
            return meter.is_idle(self._windows, now_ms)
        limit = self._limits.limit_of(*key)
        # Without a limit the quota was removed, so the bucket is of no use any more.
        return limit is None or meter.is_idle(limit.value, self._mutation_windows, now_ms)


class Mutations:
    """The partitions that one request creates and deletes, and the throttle time of its answer.

    With a strict quota, a change is refused if earlier ones have used up the quota.  Otherwise it
    is made, and its client is throttled.
    """

    __slots__ = ("_client", "_is_strict", "_quotas", "throttle_ms")

    def __init__(self, quotas: Quotas, client: Client, *, is_strict: bool) -> None:
        self._quotas = quotas
        self._client = client
        self._is_strict = is_strict
        self.throttle_ms = 0

    def record(self, partitions: int) -> None:
        """Count a change before it is made; raise ThrottlingQuotaExceeded if it is refused."""
        quotas, client = self._quotas, self._client
        if not quotas.is_on:
            return
        throttle_ms = quotas.mutate(client, partitions, is_strict=self._is_strict)
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        if self._is_strict and throttle_ms:
            raise ThrottlingQuotaExceeded(
                f"user {client.peer.principal.name!r}, client id {client.client_id!r}: the quota "
                "controller_mutation_rate of partitions that are created and deleted per second "
                f"is used up; try again in {self.throttle_ms} ms"
            )


def _meter_key(key: QuotaKey, limit: Limit) -> MeterKey:
    """Return whose use counts against a limit, without a long client id."""
    client_id = limit.client_id
    if len(client_id) > CLIENT_ID_CHARACTERS_MAX:
        from hashlib import sha256  # Most client ids are short, and it loads OpenSSL.

        client_id = sha256(client_id.encode()).hexdigest()
    return MeterKey(key, limit.user, client_id)
