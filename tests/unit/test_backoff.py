"""Delays grow, are spread around their middle, and stay below their limit."""

from sharegroup.backoff import Backoff, without_jitter


def delays(*, chance: float, count: int) -> list[int]:
    backoff = Backoff(100, 1_000, chance=lambda: chance)
    return [backoff.next_ms() for _ in range(count)]


def test_delays_double_up_to_the_limit() -> None:
    assert delays(chance=0.5, count=6) == [100, 200, 400, 800, 1_000, 1_000]


def test_chance_spreads_a_delay_by_a_fifth_and_never_above_the_limit() -> None:
    assert delays(chance=0.0, count=5) == [80, 160, 320, 640, 800]
    assert delays(chance=0.999999, count=5) == [120, 240, 480, 960, 1_000]


def test_delays_without_jitter_are_exact() -> None:
    backoff = Backoff(333, 1_000, chance=without_jitter)
    assert [backoff.next_ms() for _ in range(3)] == [333, 666, 1_000]


def test_success_starts_over() -> None:
    backoff = Backoff(100, 1_000, chance=lambda: 0.5)
    assert [backoff.next_ms(), backoff.next_ms()] == [100, 200]
    backoff.reset()
    assert backoff.next_ms() == 100


def test_delay_after_a_day_of_failures_is_the_limit() -> None:
    assert delays(chance=0.5, count=100_000)[-1] == 1_000
