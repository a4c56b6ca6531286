"""Records of one key run one after the other, in the order of their offsets."""

from __future__ import annotations

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
