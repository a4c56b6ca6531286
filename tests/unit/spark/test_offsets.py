from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.client.offset_set import OffsetSet
from sharegroup.ids import TopicId, TopicName, TopicPartition
from sharegroup.spark.carry import Carry
from sharegroup.spark.offsets import CheckpointError, StreamOffset, Subscription, parse
from sharegroup.spark.partition import Run

ORDERS = TopicId(UUID("eae3b58d-edc1-4e4d-98c0-390bc31856f3"))
AGAIN = TopicId(UUID("00000000-0000-4000-8000-000000000001"))
NAMES = {ORDERS: TopicName("orders"), AGAIN: TopicName("orders")}
BILLING = Subscription("billing", ("orders",))

runs = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=20
).map(lambda steps: tuple(_runs(steps)))
keys = st.builds(TopicPartition, st.sampled_from([ORDERS, AGAIN]), st.integers(0, 12))
acquired = st.dictionaries(keys, runs, max_size=4)
sets = st.dictionaries(
    keys, runs.map(lambda some: OffsetSet.of((one.first, one.end) for one in some)), max_size=4
)


def _runs(steps: list[tuple[int, int, int]]) -> list[Run]:
    made, reached = [], 0
    for gap, length, count in steps:
        made.append(Run(reached + gap, reached + gap + length, count))
        reached += gap + length
    return made


def test_an_offset_is_flat_and_named() -> None:
    offset = StreamOffset(
        BILLING,
        7,
        "8b1e",
        "5f0c",
        {
            TopicPartition(ORDERS, 0): (Run(100, 150, 1), Run(157, 160, 2)),
            TopicPartition(ORDERS, 1): (Run(0, 9, 1),),
        },
        Carry(accept={TopicPartition(ORDERS, 2): OffsetSet(((3, 5),))}),
        NAMES,
    )
    assert offset.to_json() == {
        "v": 1,
        "seq": 7,
        "group": "billing",
        "subscribe": ["orders"],
        "query": "8b1e",
        "load": "5f0c",
        "acquired": {
            "6uO1je3BTk2YwDkLwxhW8w": {
                "topic": "orders",
                "runs": {"0": [100, 50, 7, 3], "1": [0, 9]},
                "counts": {"0": [1, 1, 2, 1]},
            }
        },
        "carry": {"accept": {"6uO1je3BTk2YwDkLwxhW8w": {"topic": "orders", "runs": {"2": [3, 2]}}}},
    }


@given(acquired, sets, sets, st.integers(1, 2**62))
def test_what_was_logged_is_read_back(
    held: dict[TopicPartition, tuple[Run, ...]],
    accept: dict[TopicPartition, OffsetSet],
    reject: dict[TopicPartition, OffsetSet],
    seq: int,
) -> None:
    offset = StreamOffset(BILLING, seq, "query", "load", held, Carry(accept, reject), NAMES)
    text = json.dumps(offset.to_json())
    read = parse(json.loads(text), BILLING)
    assert (read.seq, read.load, read.acquired, read.carry) == (
        seq,
        "load",
        held,
        Carry(accept, reject),
    )
    assert json.dumps(read.to_json()) == text


def test_a_day_of_releases_stays_small() -> None:
    """A thousand single records in each of ten partitions, each delivered twice: 10,000 runs."""
    held = {
        TopicPartition(ORDERS, partition): tuple(
            Run(10**9 + 7 * index, 10**9 + 7 * index + 1, 1 + index % 2) for index in range(1000)
        )
        for partition in range(10)
    }
    text = json.dumps(StreamOffset(BILLING, 1, "", "", held, Carry(), NAMES).to_json())
    assert len(text) < 140_000


def test_the_checkpoint_of_another_group_is_refused() -> None:
    said = StreamOffset(Subscription("shipping", ("orders",))).to_json()
    with pytest.raises(CheckpointError, match=r"belongs to share group 'shipping'.*is 'billing'"):
        parse(said, BILLING)


def test_a_changed_subscription_is_refused() -> None:
    said = StreamOffset(Subscription("billing", ("orders", "refunds"))).to_json()
    with pytest.raises(CheckpointError, match=r"subscribe='orders,refunds', now it is 'orders'"):
        parse(said, BILLING)


def test_the_order_of_topics_in_the_option_does_not_matter() -> None:
    said = StreamOffset(Subscription("billing", ("refunds", "orders"))).to_json()
    assert parse(said, Subscription("billing", ("orders", "refunds"))).seq == 0


def test_a_checkpoint_of_another_version_is_refused() -> None:
    with pytest.raises(CheckpointError, match="version 2; expected 1"):
        parse({"v": 2, "seq": 4}, BILLING)
