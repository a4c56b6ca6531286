"""Equal keys go where Java's producer sends them."""

import pytest

from sharegroup.client.produce.partitioner import StickyPartition, murmur2, partition_for_key

# Signed 32-bit values as Kafka's own tests of murmur2 have them.
JAVA_HASHES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "signed"), JAVA_HASHES, ids=lambda value: str(value)[:12])
def test_murmur2_is_javas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


def test_negative_hashes_lose_their_sign_bit_before_the_remainder() -> None:
    # -973932308 & 0x7fffffff = 1173551340, and 1173551340 = 7 * 167650191 + 3.
    assert partition_for_key(b"21", 7) == 3
    assert partition_for_key(b"21", 1) == 0


def test_records_without_key_use_one_partition_until_move_on() -> None:
    leaders = (1, 2, 3, 4)
    sticky = StickyPartition(chance=lambda: 0.5)
    assert [sticky.current(leaders), sticky.current(leaders)] == [2, 2]
    sticky.move_on(leaders)
    assert sticky.current(leaders) == 1  # The second of the others: 0, 1 and 3.


def test_move_on_always_changes_the_partition() -> None:
    for chance in (0.0, 0.3, 0.999):
        sticky = StickyPartition(chance=lambda chance=chance: chance)
        before = sticky.current((1, 1, 1))
        sticky.move_on((1, 1, 1))
        assert sticky.current((1, 1, 1)) != before


def test_topic_with_one_partition_always_uses_it() -> None:
    sticky = StickyPartition(chance=lambda: 0.9)
    sticky.move_on((1,))
    assert sticky.current((1,)) == 0


def test_partition_without_a_leader_is_left_at_once_and_not_chosen() -> None:
    for chance in (0.0, 0.5, 0.999):
        sticky = StickyPartition(chance=lambda chance=chance: chance)
        before = sticky.current((1, 1, 1))
        led = [1, 1, 1]
        led[before] = -1
        assert sticky.current(led) != before
        sticky.move_on(led)
        assert sticky.current(led) != before


def test_without_any_leader_records_wait_in_one_partition() -> None:
    chances = iter((0.9, 0.1, 0.1))
    sticky = StickyPartition(chance=lambda: next(chances))
    assert [sticky.current((-1, -1, -1)) for _ in range(3)] == [2, 2, 2]
    sticky.move_on((-1, -1, -1))
    assert sticky.current((-1, -1, -1)) == 2
