"""Equal keys go where Java's producer sends them."""

import pytest

from sharegroup.client.partitioner import StickyPartition, murmur2, partition_for_key

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


def test_records_without_key_stay_until_they_are_told_to_move() -> None:
    sticky = StickyPartition(chance=lambda: 0.5)
    assert [sticky.current(4), sticky.current(4)] == [2, 2]
    sticky.move_on(4)
    assert sticky.current(4) == 0  # 1 + int(0.5 * 3) = 2 further, around the end.


def test_moving_on_never_stays() -> None:
    for chance in (0.0, 0.3, 0.999):
        sticky = StickyPartition(chance=lambda chance=chance: chance)
        before = sticky.current(3)
        sticky.move_on(3)
        assert sticky.current(3) != before


def test_one_partition_is_all_there_is() -> None:
    sticky = StickyPartition(chance=lambda: 0.9)
    sticky.move_on(1)
    assert sticky.current(1) == 0
