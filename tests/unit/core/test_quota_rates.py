"""Rates and token buckets beside slow models, and the bound on the number of meters."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, strategies as st

from sharegroup.core.quotas.entities import QuotaKey
from sharegroup.core.quotas.meters import MeterKey, Meters, Rate, TokenBucket, Windows
from sharegroup.core.security.principal import USER, Principal

KAFKA = Windows(11, 1000)
"""quota.window.num and quota.window.size.seconds by default."""

uses = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 10_000)), min_size=1, max_size=40)
"""Pauses in milliseconds, each with the use after it."""


@dataclass
class SlowRate:
    """Every use by time, and windows that begin with the first use after the end of another."""

    windows: Windows
    all_uses: list[list[tuple[int, float]]] = field(default_factory=list)

    def record(self, amount: float, now_ms: int) -> None:
        if not self.all_uses or now_ms - self.all_uses[-1][0][0] >= self.windows.window_ms:
            self.all_uses.append([])
        self.all_uses[-1].append((now_ms, amount))

    def per_second(self, now_ms: int) -> float:
        kept = [w for w in self.all_uses if now_ms - w[-1][0] < self.windows.kept_ms]
        elapsed_ms = now_ms - kept[0][0][0] if kept else 0
        full = elapsed_ms // self.windows.window_ms
        while full < self.windows.number - 1:
            full, elapsed_ms = full + 1, elapsed_ms + self.windows.window_ms
        return sum(amount for w in kept for _, amount in w) / max(1, elapsed_ms) * 1000


@given(uses, st.sampled_from([KAFKA, Windows(1, 1000), Windows(3, 500)]))
def test_rate_equals_that_of_the_slow_model(used: list[tuple[int, int]], windows: Windows) -> None:
    rate, slow, now_ms = Rate(), SlowRate(windows), 5
    for pause_ms, amount in used:
        now_ms += pause_ms
        rate.record(amount, windows, now_ms)
        slow.record(amount, now_ms)
        assert abs(rate.per_second(windows, now_ms) - slow.per_second(now_ms)) < 1e-6


def test_client_that_pauses_as_told_gets_its_limit_in_the_long_run() -> None:
    rate, now_ms, total = Rate(), 0, 0
    while now_ms < 600_000:
        rate.record(50_000, KAFKA, now_ms)
        total += 50_000
        now_ms += max(10, rate.throttle_ms(100_000, KAFKA, now_ms))
    assert 95_000 < total / 600 < 105_000


def test_whole_limit_of_ten_windows_may_be_used_at_once() -> None:
    rate = Rate()
    rate.record(1000, KAFKA, 0)
    assert rate.throttle_ms(100, KAFKA, 0) == 0
    rate.record(1, KAFKA, 0)
    assert rate.throttle_ms(100, KAFKA, 0) == 10
    rate.record(999, KAFKA, 0)
    assert rate.throttle_ms(100, KAFKA, 0) == 10_000


def test_use_that_is_taken_back_does_not_count() -> None:
    rate = Rate()
    rate.record(100, KAFKA, 0)
    rate.record(-100, KAFKA, 10)
    assert rate.per_second(KAFKA, 10) == 0


def test_room_is_what_a_client_may_use_now() -> None:
    rate = Rate()
    rate.record(300, KAFKA, 0)
    room = rate.room(100, KAFKA, 0)
    assert room == 700
    rate.record(room, KAFKA, 0)
    assert rate.throttle_ms(100, KAFKA, 0) == 0
    rate.record(1, KAFKA, 0)
    assert rate.throttle_ms(100, KAFKA, 0) > 0


def test_rate_is_idle_after_all_its_windows() -> None:
    rate = Rate()
    rate.record(10**9, KAFKA, 0)
    assert not rate.is_idle(KAFKA, 10_999)
    assert rate.is_idle(KAFKA, 11_000)
    assert rate.per_second(KAFKA, 11_000) == 0


def test_bucket_begins_full_and_is_overdrawn_by_one_use_only() -> None:
    bucket = TokenBucket()
    assert bucket.tokens(2, KAFKA, 1_000_000) == 22
    bucket.record(30, 2, KAFKA, 1_000_000)
    assert bucket.throttle_ms(2, KAFKA, 1_000_000) == 4000
    assert bucket.throttle_ms(2, KAFKA, 1_003_999) == 1  # 2 tokens a second.
    assert bucket.throttle_ms(2, KAFKA, 1_004_000) == 0


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 50)), max_size=40))
def test_changes_that_the_bucket_allows_stay_within_the_limit(
    wanted: list[tuple[int, int]],
) -> None:
    bucket, now_ms, allowed = TokenBucket(), 0, 0
    for pause_ms, amount in wanted:
        now_ms += pause_ms
        if bucket.throttle_ms(3, KAFKA, now_ms) == 0:
            bucket.record(amount, 3, KAFKA, now_ms)
            allowed += amount
    assert allowed <= 33 + 3 * now_ms / 1000 + 50  # The burst, the time, and the last change.


def key(number: int) -> MeterKey:
    return MeterKey(QuotaKey.PRODUCER_BYTE_RATE, "user", f"client-{number}")


def test_idle_meter_is_replaced() -> None:
    meters = Meters(Rate, count_max=2)
    first = meters.of(key(1), lambda *_: False)
    meters.of(key(2), lambda *_: False)
    assert meters.of(key(1), lambda *_: False) is first
    third = meters.of(key(3), lambda found, _: found == key(2))
    assert third is not first
    assert meters.of(key(1), lambda *_: False) is first
    assert (len(meters), meters.shared_count) == (2, 0)


def test_clients_beyond_the_bound_share_a_meter_with_their_own_use() -> None:
    meters = Meters(Rate, count_max=100)
    for number in range(10_000):
        meters.of(key(number), lambda *_: False).record(1, KAFKA, 0)
    assert (len(meters), meters.shared_count) == (100, 9900)
    shared = meters.of(key(123_456), lambda *_: False)
    assert shared.per_second(KAFKA, 0) == 990


def test_user_with_too_many_clients_shares_a_meter_with_itself_alone() -> None:
    alice, bob = Principal(USER, "alice"), Principal(USER, "bob")
    meters = Meters(Rate, count_max=10, user_percent=50)
    for number in range(1_000):
        meters.of(key(number), lambda *_: False, alice).record(1, KAFKA, 0)
    assert (len(meters), meters.total.held_by(alice), meters.total.refused_count) == (5, 5, 995)
    assert meters.of(key(2_000), lambda *_: False, alice).per_second(KAFKA, 0) == 99.5
    of_bob = {id(meters.of(key(3_000 + number), lambda *_: False, bob)) for number in range(5)}
    assert len(of_bob) == 5, "a meter for each of his clients"
    carol = meters.of(key(4_000), lambda *_: False, Principal(USER, "carol"))
    assert carol.per_second(KAFKA, 0) == 0, "she shares with the others, not with alice"
    assert carol is meters.of(key(4_001), lambda *_: False)


def test_common_meter_of_a_user_without_clients_is_forgotten() -> None:
    alice, bob = Principal(USER, "alice"), Principal(USER, "bob")
    meters = Meters(Rate, count_max=2, user_percent=50)
    meters.of(key(1), lambda *_: False, alice)
    common = meters.of(key(2), lambda *_: False, alice)
    assert meters.of(key(2), lambda *_: False, alice) is common
    meters.of(key(3), lambda *_: False, bob)
    meters.of(key(4), lambda found, _: found == key(1), bob)
    assert meters.total.held_by(alice) == 0
    meters.of(key(5), lambda *_: False, alice)
    assert meters.of(key(6), lambda *_: False, alice) is not common
