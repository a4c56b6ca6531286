"""Records of one key run one after the other, in the order of their offsets."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sharegroup.worker.running.key_order import KeyOrder
from tests.unit.worker.running.hand import in_hand, offsets


def test_one_record_per_key_is_admitted_and_other_keys_are_independent() -> None:
    keys = KeyOrder()
    some = [in_hand(n, key=key) for n, key in enumerate([b"a", b"b", b"a", b"a", b"c"])]
    assert [keys.admit(record) for record in some] == [True, True, False, False, True]
    assert keys.waiting == 2


def test_waiting_records_of_a_key_run_in_offset_order() -> None:
    keys = KeyOrder()
    first, *others = [in_hand(n, key=b"a") for n in (0, 5, 2, 9)]
    keys.admit(first)
    for other in others:
        keys.admit(other)
    order, following = [], keys.done(first)
    while following is not None:
        order.append(following)
        following = keys.done(following)
    assert offsets(order) == [2, 5, 9]
    assert (keys.waiting, keys.admit(in_hand(10, key=b"a"))) == (0, True)


def test_record_without_a_key_does_not_wait() -> None:
    keys = KeyOrder()
    first, second = in_hand(0), in_hand(1)
    assert keys.admit(first)
    assert keys.admit(second)
    assert keys.done(first) is None


def test_waiting_records_can_be_listed() -> None:
    keys = KeyOrder()
    for n in range(3):
        keys.admit(in_hand(n, key=b"a"))
    assert offsets(keys) == [1, 2]


def test_lost_waiting_record_does_not_admit_another() -> None:
    keys = KeyOrder()
    runs, waits, is_lost = (in_hand(n, key=b"a") for n in range(3))
    for record in (runs, waits, is_lost):
        keys.admit(record)
    assert keys.done(is_lost) is None
    assert (offsets(keys), keys.waiting) == ([1], 1)
    assert keys.done(runs) is waits
    assert keys.done(waits) is None
    assert keys.admit(in_hand(3, key=b"a"))


def test_take_returns_only_waiting_records_below_the_delivery_count() -> None:
    keys = KeyOrder()
    runs = in_hand(0, key=b"a")
    for record in (runs, in_hand(1, key=b"a", delivery_count=4), in_hand(2, key=b"a")):
        keys.admit(record)
    assert offsets(keys.take(4, alone=False)) == [2]
    following = keys.done(runs)
    assert following is not None
    assert (following.delivery.offset, keys.waiting) == (1, 0)


@dataclass(unsafe_hash=True)
class Customer:
    """A key that is a part of the payload, which a handler may change."""

    name: str


def test_key_that_its_handler_changes_gives_way_to_the_next_record() -> None:
    """Its hash is another one then, so a look-up by the key would end the worker."""
    keys = KeyOrder()
    customers = [Customer("eve") for _ in range(3)]
    first, second, third = (in_hand(n, key=customer) for n, customer in enumerate(customers))
    assert [keys.admit(record) for record in (first, second, third)] == [True, False, False]
    customers[0].name = "adam"
    assert keys.done(first) is second
    customers[1].name = "adam"
    assert keys.done(second) is third
    assert keys.done(third) is None
    assert (keys.waiting, keys.admit(in_hand(4, key=Customer("eve")))) == (0, True)


def test_key_that_cannot_be_compared_is_left_without_a_comparison() -> None:
    class Key:
        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            raise ValueError("in __eq__")

    keys = KeyOrder()
    first = in_hand(0, key=Key())
    assert keys.admit(first)
    with pytest.raises(ValueError, match="__eq__"):
        keys.admit(in_hand(1, key=Key()))
    assert keys.done(first) is None
    assert keys.admit(in_hand(2, key=Key()))


def test_different_keys_with_the_same_hash_are_independent() -> None:
    keys = KeyOrder()
    first, other = in_hand(0, key=-1), in_hand(1, key=-2)  # Both have the hash -2.
    assert [keys.admit(first), keys.admit(other), keys.admit(in_hand(2, key=-1))] == [
        True, True, False,
    ]  # fmt: skip
    assert offsets([following for following in [keys.done(first)] if following]) == [2]
    assert keys.done(other) is None
