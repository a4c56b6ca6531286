"""Pushed values: totals and increments, age, and the limit of their memory."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sharegroup.core.client_telemetry.pushed_values import (
    INSTANCE_BYTES,
    INSTANCE_BYTES_MAX,
    SERIES_BYTES,
    PushedValues,
    Series,
    silent_from_ms,
)
from sharegroup.core.client_telemetry.subscriptions import ClientIdentity
from sharegroup.core.security.principal import Principal

CLIENT = ClientIdentity("id", "orders-1", "java", "4.4.0", "10.0.0.7", "50123")


class Value(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...] = ()
    value: float = 1.0
    is_counter: bool = False
    is_increment: bool = False


def put(
    values: PushedValues, number: int, *pushed: Value, now_ms: int = 0, interval_ms: int = 100
) -> None:
    values.put(
        UUID(int=number), CLIENT, (), pushed, due_ms=silent_from_ms(now_ms, interval_ms=interval_ms)
    )


def series(values: PushedValues) -> list[Series]:
    return [found for _, every in values.series() for found in every]


def test_totals_replace_and_increments_add_up() -> None:
    values = PushedValues()
    for number in (5.0, 7.0):
        put(
            values,
            1,
            Value("total", value=number, is_counter=True),
            Value("growth", value=number, is_counter=True, is_increment=True),
            Value("total", (("topic", "a"),), number),
        )
    assert series(values) == [
        Series("total", (), 7.0, True),
        Series("growth", (), 12.0, True),
        Series("total", (("topic", "a"),), 7.0, False),
    ]
    assert values.values_count == 6


def test_values_of_a_silent_client_are_removed() -> None:
    values = PushedValues()
    put(values, 1, Value("a"), interval_ms=100)
    put(values, 2, Value("b"), interval_ms=30_000)
    values.expire(now_ms=59_999)
    assert len(values) == 2
    values.expire(now_ms=60_000)
    assert [found.name for found in series(values)] == ["b"]
    values.expire(now_ms=90_000)
    assert (len(values), values.size_bytes) == (0, 0)


def test_clients_that_were_silent_for_longest_make_room() -> None:
    one = INSTANCE_BYTES + SERIES_BYTES + 1
    values = PushedValues(total_bytes_max=2 * one)
    put(values, 1, Value("a"))
    put(values, 2, Value("b"))
    put(values, 1, Value("a"))
    assert values.size_bytes == 2 * one
    put(values, 3, Value("c"))
    assert [found.name for found in series(values)] == ["a", "c"]
    assert values.size_bytes == 2 * one


def test_one_client_has_a_limit_of_its_own() -> None:
    values = PushedValues()
    many = [Value(f"{number:06}") for number in range(3_000)]
    put(values, 1, *many)
    kept = len(series(values))
    assert kept == (INSTANCE_BYTES_MAX - INSTANCE_BYTES) // (SERIES_BYTES + 6)
    assert values.dropped_count == 3_000 - kept
    put(values, 1, Value("000000", value=9.0))
    assert series(values)[0].value == 9.0


def test_a_user_makes_room_among_its_own_clients() -> None:
    one = INSTANCE_BYTES + SERIES_BYTES + 1
    eve, bob = Principal("User", "eve"), Principal("User", "bob")
    values = PushedValues(total_bytes_max=6 * one, user_percent=50)

    def push(number: int, name: str, owner: Principal) -> None:
        pushed = [Value(name)]
        values.put(
            UUID(int=number),
            CLIENT,
            (),
            pushed,
            due_ms=silent_from_ms(0, interval_ms=1),
            owner=owner,
        )

    push(1, "b", bob)
    for number in range(2, 100):
        push(number, "e", eve)
    assert [found.name for found in series(values)] == ["b", "e", "e", "e"]
    assert values.size_bytes == 4 * one
    values.expire(now_ms=10**9)
    assert (len(values), values.size_bytes) == (0, 0)
    push(1, "b", bob)
    assert values.size_bytes == one
