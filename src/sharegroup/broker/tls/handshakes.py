"""Limits the TLS handshakes of a broker: how many are pending, how long, and the time they take.

A peer that only connects costs a socket.  One that sends the beginning of a handshake costs 45 KB
until its end or the time limit, and one that completes handshakes costs the event loop 0.3 ms each
with a key for P-256, and 1 ms with an RSA key of 2,048 bits.  So pending handshakes are limited in
number, in total and for each address.  `ACTIVE_MAX` of them have begun, and together they get
`TIME_SHARE` of the time; others wait without being received.  Addresses take turns, and requests of
established connections have the rest of the time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from sharegroup.broker.clock import Clock, TimerHandle
from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.broker.load.admission import Admission
from sharegroup.broker.load.log_limit import LinesByAddress

if TYPE_CHECKING:
    # Only brokers with TLS import it.
    from sharegroup.broker.tls.transport import TlsLayer

log = logging.getLogger(__name__)

TIME_SHARE = 0.3
"""The share of time that handshakes may take while many are pending."""

ACTIVE_MAX = 64
"""Handshakes that have begun and are not complete; more wait until one of them ends."""

BURST_SECONDS = 0.05
"""The time that handshakes may take at once after a pause."""

EVICTION_MS = 1_000
"""A handshake that has been pending or active for so long may be closed for another one."""

CROWDED_MS = 250
"""The same for an active handshake of the address with the most, if another address has fewer."""

LINGER_MS = 1_000
"""The time in which a peer may read why its handshake failed."""

RETRY_MS = 5
"""Time between two looks at the handshakes that wait."""


class Handshakes:
    """The pending handshakes of all TLS listeners of one broker."""

    __slots__ = (
        "_active",
        "_admission",
        "_by_host",
        "_clock",
        "_credit",
        "_credit_at",
        "_host_max",
        "_is_stopping",
        "_lines",
        "_lingering",
        "_max",
        "_pending_ms",
        "_processor_seconds",
        "_seconds",
        "_timer",
        "_waiting",
        "busy_seconds",
    )

    def __init__(
        self,
        clock: Clock,
        admission: Admission,
        config: ServerConfig,
        *,
        seconds: Callable[[], float] = time.perf_counter,
        processor_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        """The clocks count seconds, elapsed and of the thread's processor.

        Handshakes are charged for processor time: on a busy machine, the time that other programs
        take must not keep clients out.
        """
        self._clock, self._seconds = clock, seconds
        self._processor_seconds = processor_seconds
        self._admission = admission
        self._max = config.handshakes_max
        self._host_max = config.handshakes_per_ip_max
        self._pending_ms = config.handshake_ms
        self._by_host: dict[str, dict[TlsLayer, None]] = {}
        """The pending handshakes, by address, the oldest first."""
        self._lingering: dict[TlsLayer, int] = {}
        """The connections with failed handshakes, and the time at which they are closed."""
        self._active: dict[TlsLayer, int] = {}
        """The handshakes that have begun, and when, the first one first."""
        self._waiting: dict[str, deque[TlsLayer]] = {}
        """The handshakes that wait for their turn, by address."""
        self._credit, self._credit_at = BURST_SECONDS, seconds()
        self._timer: TimerHandle | None = None
        self._lines = LinesByAddress()
        self._is_stopping = False
        self.busy_seconds = 0.0
        """The time that handshakes have taken."""

    @property
    def pending_count(self) -> int:
        """The number of pending handshakes."""
        return sum(map(len, self._by_host.values()))

    @property
    def is_empty(self) -> bool:
        """Whether no connection is in a handshake or lingers after a failed one."""
        return not self._by_host and not self._lingering

    def accept(self, layer: TlsLayer) -> bool:
        """Register an accepted connection; return False if it must be closed."""
        now_ms = self._clock.now_ms()
        if self._is_stopping or not self._has_room(layer, now_ms):
            return False
        if not self._admission.admit(layer, now_ms=now_ms):
            return False
        self._by_host.setdefault(layer.host, {})[layer] = None
        return True

    def advance(self, layer: TlsLayer) -> None:
        """Let a handshake go on, now or when it is its turn."""
        # Never past handshakes that wait.
        if not self._waiting and self._has_time() and self._may_begin(layer):
            self._shake(layer)
            return
        layer.wait()
        own = self._waiting.setdefault(layer.host, deque())
        if layer in self._active:
            own.appendleft(layer)  # It holds a place that others wait for.
        else:
            own.append(layer)
        self._set_timer()

    def completed(self, layer: TlsLayer) -> None:
        """Forget a complete handshake; its connection stays admitted."""
        self._leave(layer)

    def failed(self, layer: TlsLayer, listener: str, reason: str) -> None:
        """Forget a failed handshake, and log it."""
        self._leave(layer)
        self._lingering[layer] = self._clock.now_ms() + LINGER_MS
        self.report("tls_handshake_failed", layer, listener, reason)

    def report(self, event: str, layer: TlsLayer, listener: str, reason: str) -> None:
        """Log that a connection ends, once per address and second."""
        unlogged = self._lines.unlogged(layer.host, self._clock.now_ms())
        if unlogged is not None:
            log.warning(
                "event=%s peer=%s listener=%s reason=%r unlogged=%d",
                event,
                layer.peer,
                listener,
                reason,
                unlogged,
            )

    def closed(self, layer: TlsLayer) -> None:
        """Forget a connection that was closed before its handshake was complete."""
        self._leave(layer)
        self._lingering.pop(layer, None)
        self._admission.leave(layer)

    def check_progress(self, now_ms: int) -> None:
        """Close connections whose handshake takes too long or has failed for long enough."""
        for layers in list(self._by_host.values()):
            for layer in list(layers):
                if now_ms - layer.began_ms <= self._pending_ms:
                    break  # The oldest one comes first.
                layer.close(f"the TLS handshake took more than {self._pending_ms} ms")
        for layer, until_ms in list(self._lingering.items()):
            if now_ms >= until_ms:
                layer.abort()

    def stop(self) -> None:
        """Close all connections in a handshake, and accept no more."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for layers in list(self._by_host.values()):
            for layer in list(layers):
                layer.abort()
        for layer in list(self._lingering):
            layer.abort()

    def _has_room(self, layer: TlsLayer, now_ms: int) -> bool:
        """Return whether one more handshake may be pending; make room by closing an old one."""
        own = self._by_host.get(layer.host, {})
        for layers, count, count_max, key in (
            (own, len(own), self._host_max, "sharegroup.tls.handshakes.per.ip.max"),
            (
                max(self._by_host.values(), key=len, default=own),
                self.pending_count,
                self._max,
                "sharegroup.tls.handshakes.max",
            ),
        ):
            if count < count_max:
                continue
            # Insertion order: the first one is the oldest, so no other can be slow if this is not.
            oldest = next(iter(layers))
            if now_ms - oldest.began_ms < EVICTION_MS:
                self._admission.refuse(layer.peer, f"{key}={count_max}", now_ms)
                return False
            oldest.close("the TLS handshake was slow, and a new connection needs its place")
            # At once: the event loop reports the end of the connection only later.
            self._leave(oldest)
        return True

    def _may_begin(self, layer: TlsLayer) -> bool:
        """Return whether the handshake has begun, or may begin now."""
        if layer in self._active:
            return True
        now_ms = self._clock.now_ms()
        if len(self._active) >= ACTIVE_MAX and not self._make_place(layer.host, now_ms):
            return False
        self._active[layer] = now_ms
        return True

    def _make_place(self, host: str, now_ms: int) -> bool:
        """Close a slow active handshake of the address with the most; return False if none is slow.

        Addresses with fewer active handshakes wait less for a place.
        """
        counts = Counter(layer.host for layer in self._active)
        hog, count = counts.most_common(1)[0]
        oldest, begun_ms = next(
            (layer, begun_ms) for layer, begun_ms in self._active.items() if layer.host == hog
        )
        slow_ms = CROWDED_MS if count > counts[host] + 1 else EVICTION_MS
        if now_ms - begun_ms < slow_ms:
            return False
        oldest.close("the TLS handshake was slow, and another one needs its place")
        return True

    def _leave(self, layer: TlsLayer) -> None:
        self._active.pop(layer, None)
        layers = self._by_host.get(layer.host)
        if layers is None or layer not in layers:
            return
        del layers[layer]
        if not layers:
            del self._by_host[layer.host]

    def _has_time(self) -> bool:
        now = self._seconds()
        earned = (now - self._credit_at) * TIME_SHARE
        self._credit = min(BURST_SECONDS, self._credit + earned)
        self._credit_at = now
        return self._credit > 0

    def _shake(self, layer: TlsLayer) -> None:
        begin = self._processor_seconds()
        layer.shake()
        taken = self._processor_seconds() - begin
        self._credit -= taken
        self.busy_seconds += taken

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_at_ms(self._clock.now_ms() + RETRY_MS, self._take_turns)

    def _take_turns(self) -> None:
        """Let waiting handshakes go on while there are time and places, address by address."""
        self._timer = None
        stuck = 0
        # Each address in turn; when all of them are stuck, only the end of a handshake makes a
        # place.
        while stuck < len(self._waiting) and self._has_time():
            host = next(iter(self._waiting))
            layers = self._waiting.pop(host)
            layer = layers.popleft()
            if not layer.is_shaking:
                stuck = 0
            elif self._may_begin(layer):
                stuck = 0
                self._shake(layer)
            else:
                stuck += 1
                layers.appendleft(layer)
            if layers:
                self._waiting[host] = layers  # Behind the other addresses.
        if self._waiting and not self._is_stopping:
            self._set_timer()
