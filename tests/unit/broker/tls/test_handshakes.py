"""Limits of pending TLS handshakes: places, time limit, and their share of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.broker.load.admission import Admission
from sharegroup.broker.tls.handshakes import (
    ACTIVE_MAX,
    BURST_SECONDS,
    CROWDED_MS,
    EVICTION_MS,
    LINGER_MS,
    Handshakes,
)
from sharegroup.testing import ManualClock

CONFIG = ServerConfig(handshakes_max=4, handshakes_per_ip_max=3, handshake_ms=5_000)


@dataclass(eq=False)
class Layer:
    """A connection in its handshake."""

    connection_id: int
    handshakes: Handshakes
    began_ms: int
    host: str = "10.0.0.1"
    step_seconds: float = 0.0
    is_shaking: bool = True
    steps: int = 0
    order: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=lambda: [0.0])
    waits: int = 0
    closed: list[str] = field(default_factory=list)
    is_aborted: bool = False

    @property
    def peer(self) -> str:
        return f"{self.host}:1"

    @property
    def idle_since_ms(self) -> int:
        return self.began_ms

    def shake(self) -> None:
        self.steps += 1
        self.order.append(self.connection_id)
        self.times[0] += self.step_seconds

    def wait(self) -> None:
        self.waits += 1

    def close(self, reason: str) -> None:
        self.closed.append(reason)
        self.handshakes.failed(self, "SSL", reason)  # type: ignore[arg-type]  # What it calls.
        self.abort()

    def abort(self) -> None:
        self.is_aborted, self.is_shaking = True, False
        self.handshakes.closed(self)  # type: ignore[arg-type]


class Scene:
    """Handshakes on a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.admission = Admission(100, host_max=100)
        self.order: list[int] = []
        self.times = [100.0]
        self.handshakes: Any = self.limited(CONFIG)
        self._ids = 0

    def limited(self, config: ServerConfig) -> Handshakes:
        def seconds() -> float:
            return self.times[0]

        return Handshakes(
            self.clock, self.admission, config, seconds=seconds, processor_seconds=seconds
        )

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self.times[0] += seconds
        self.clock.advance(seconds)

    def layer(self, host: str = "10.0.0.1", step_seconds: float = 0.0) -> Layer:
        self._ids += 1
        layer = Layer(self._ids, self.handshakes, self.clock.now_ms(), host, step_seconds)
        layer.order, layer.times = self.order, self.times
        return layer

    def accepted(self, *hosts: str) -> list[Layer]:
        layers = [self.layer(host) for host in hosts]
        assert all(self.handshakes.accept(layer) for layer in layers)
        return layers


A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def test_handshake_beyond_the_limit_of_its_address_is_refused() -> None:
    scene = Scene()
    scene.accepted(A, A, A)
    assert not scene.handshakes.accept(scene.layer(A))
    assert scene.handshakes.accept(scene.layer(B))
    assert scene.admission.count == 4
    assert scene.admission.refused_count == 1


def test_slow_handshake_gives_way_to_a_new_one_of_its_address() -> None:
    scene = Scene()
    oldest, *_ = scene.accepted(A, A, A)
    scene.advance(EVICTION_MS / 1000)
    assert scene.handshakes.accept(scene.layer(A))
    assert oldest.closed == ["the TLS handshake was slow, and a new connection needs its place"]
    assert scene.handshakes.pending_count == 3
    assert scene.admission.count == 3


def test_address_with_the_most_handshakes_gives_way_to_others() -> None:
    scene = Scene()
    single, hog, *_ = scene.accepted(B, A, A, A)
    scene.advance(EVICTION_MS / 1000)
    assert scene.handshakes.accept(scene.layer(C))
    assert not single.closed
    assert hog.closed


def test_handshake_that_takes_too_long_is_closed() -> None:
    scene = Scene()
    [old] = scene.accepted(A)
    scene.advance(CONFIG.handshake_ms / 1000)
    [young] = scene.accepted(A)
    scene.handshakes.check_progress(scene.clock.now_ms())
    assert not old.closed
    scene.advance(0.001)
    scene.handshakes.check_progress(scene.clock.now_ms())
    assert old.closed == ["the TLS handshake took more than 5000 ms"]
    assert not young.closed


def test_failed_handshake_lingers_so_that_the_peer_reads_why() -> None:
    scene = Scene()
    [layer] = scene.accepted(A)
    scene.handshakes.failed(layer, "SSL", "unknown authority")
    assert scene.handshakes.pending_count == 0
    assert not scene.handshakes.is_empty
    scene.advance((LINGER_MS - 1) / 1000)
    scene.handshakes.check_progress(scene.clock.now_ms())
    assert not layer.is_aborted
    scene.advance(0.001)
    scene.handshakes.check_progress(scene.clock.now_ms())
    assert layer.is_aborted
    assert scene.handshakes.is_empty
    assert scene.admission.count == 0


def test_complete_handshake_keeps_its_place_for_the_connection() -> None:
    scene = Scene()
    [layer] = scene.accepted(A)
    scene.handshakes.completed(layer)
    connection: Any = Layer(layer.connection_id, scene.handshakes, 0)
    assert scene.admission.admit(connection, now_ms=0)
    assert (scene.admission.count, scene.handshakes.pending_count) == (1, 0)
    scene.admission.leave(connection)
    assert scene.admission.count == 0


def test_failures_of_an_address_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    for _ in range(3):
        for layer in scene.accepted(A, B):
            scene.handshakes.failed(layer, "EXTERNAL", "unknown authority")
            scene.handshakes.closed(layer)
    assert [record.getMessage() for record in caplog.records] == [
        f"event=tls_handshake_failed peer={host}:1 listener=EXTERNAL "
        "reason='unknown authority' unlogged=0"
        for host in (A, B)
    ]
    scene.advance(1)
    [layer] = scene.accepted(A)
    scene.handshakes.failed(layer, "EXTERNAL", "unknown authority")
    assert "unlogged=4" in caplog.records[-1].getMessage()


def test_handshakes_without_time_wait_and_addresses_take_turns() -> None:
    scene = Scene()
    costly = [scene.layer(A, 2 * BURST_SECONDS) for _ in range(3)]
    other = scene.layer(B)
    for layer in (*costly, other):
        assert scene.handshakes.accept(layer)
        scene.handshakes.advance(layer)
    assert [layer.steps for layer in costly] == [1, 0, 0]
    assert [layer.waits for layer in (*costly, other)] == [0, 1, 1, 1]
    scene.advance(0.05)
    assert scene.order == [costly[0].connection_id], "0.05 s too many; 0.045 s earned since then"
    scene.advance(0.1)
    assert scene.order[1:] == [costly[1].connection_id]
    scene.advance(1)
    assert scene.order[2:] == [other.connection_id, costly[2].connection_id]


def test_handshake_that_ended_while_it_waited_has_no_turn() -> None:
    scene = Scene()
    first, second = scene.layer(A, 2 * BURST_SECONDS), scene.layer(B)
    for layer in (first, second):
        assert scene.handshakes.accept(layer)
        scene.handshakes.advance(layer)
    second.abort()
    third = scene.layer(C)
    scene.handshakes.accept(third)
    scene.handshakes.advance(third)
    scene.advance(1)
    assert third.steps == 1
    assert second.steps == 0


def test_handshakes_beyond_the_active_ones_wait_for_a_place() -> None:
    scene = Scene()
    scene.handshakes = handshakes = scene.limited(
        ServerConfig(handshakes_per_ip_max=ACTIVE_MAX + 2)
    )
    layers: list[Any] = [scene.layer(A) for _ in range(ACTIVE_MAX + 1)]
    for layer in layers:
        layer.handshakes = handshakes
        assert handshakes.accept(layer)
        handshakes.advance(layer)
    late = layers[-1]
    scene.advance(0.1)
    assert (late.steps, late.waits) == (0, 1)
    handshakes.completed(layers[5])
    scene.advance(0.1)
    assert late.steps == 1


def test_slow_active_handshake_gives_its_place_to_one_that_waits() -> None:
    scene = Scene()
    scene.handshakes = handshakes = scene.limited(
        ServerConfig(handshakes_per_ip_max=ACTIVE_MAX + 2)
    )
    layers: list[Any] = [scene.layer(A) for _ in range(ACTIVE_MAX + 1)]
    for layer in layers:
        layer.handshakes = handshakes
        assert handshakes.accept(layer)
        handshakes.advance(layer)
    scene.advance(EVICTION_MS / 1000 + 0.01)
    assert layers[0].closed == ["the TLS handshake was slow, and another one needs its place"]
    assert layers[-1].steps == 1
    assert not layers[1].closed


def test_address_with_few_active_handshakes_waits_less_for_a_place() -> None:
    scene = Scene()
    scene.handshakes = handshakes = scene.limited(
        ServerConfig(handshakes_per_ip_max=ACTIVE_MAX + 2)
    )
    hogs = [scene.layer(A) for _ in range(ACTIVE_MAX + 1)]
    honest = scene.layer(B)
    for layer in (*hogs, honest):
        assert handshakes.accept(layer)  # type: ignore[arg-type]
        handshakes.advance(layer)  # type: ignore[arg-type]
    scene.advance((CROWDED_MS - 10) / 1000)
    assert honest.steps == 0
    scene.advance(0.02)
    assert honest.steps == 1
    assert [layer.is_aborted for layer in hogs[:2]] == [True, False]
    assert hogs[-1].steps == 0, "the same address waits longer"


def test_stop_closes_pending_and_lingering_connections_and_accepts_no_more() -> None:
    scene = Scene()
    pending, failed = scene.accepted(A, A)
    scene.handshakes.failed(failed, "SSL", "unknown authority")
    scene.handshakes.stop()
    assert pending.is_aborted
    assert failed.is_aborted
    assert scene.handshakes.is_empty
    assert not scene.handshakes.accept(scene.layer(A))
