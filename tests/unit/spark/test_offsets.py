from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.spark.carry import Carry
from sharegroup.spark.offsets import CheckpointError, StreamOffset, Subscription, parse

ORDERS = TopicId(UUID("eae3b58d-edc1-4e4d-98c0-390bc31856f3"))
AGAIN = TopicId(UUID("00000000-0000-4000-8000-000000000001"))
NAMES = {ORDERS: TopicName("orders"), AGAIN: TopicName("orders")}
BILLING = Subscription("billing", ("orders",))

runs = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=20
).map(lambda steps: tuple(_runs(steps)))
keys = st.builds(TopicIdPartition, st.sampled_from([ORDERS, AGAIN]), st.integers(0, 12))
acquired = st.dictionaries(keys, runs, max_size=4)
sets = st.dictionaries(
    keys,
    runs.map(
        lambda some: OffsetSet.of((range_.first_offset, range_.end_offset) for range_ in some)
    ),
    max_size=4,
)


def _runs(steps: list[tuple[int, int, int]]) -> list[AcquiredRecords]:
    made, reached = [], 0
    for gap, length, count in steps:
        made.append(AcquiredRecords.of_range(reached + gap, reached + gap + length, count))
        reached += gap + length
    return made


def test_an_offset_is_flat_and_named() -> None:
    offset = StreamOffset(
        BILLING,
        7,
        "8b1e",
        "5f0c",
        {
            TopicIdPartition(ORDERS, 0): (
                AcquiredRecords.of_range(100, 150, 1),
                AcquiredRecords.of_range(157, 160, 2),
            ),
            TopicIdPartition(ORDERS, 1): (AcquiredRecords.of_range(0, 9, 1),),
        },
        Carry(accept={TopicIdPartition(ORDERS, 2): OffsetSet(((3, 5),))}),
        NAMES,
        decides=True,
    )
    assert offset.to_json() == {
        "v": 1,
        "seq": 7,
        "group": "billing",
        "subscribe": ["orders"],
        "query": "8b1e",
        "load": "5f0c",
        "decides": True,
        "acquired": {
            "6uO1je3BTk2YwDkLwxhW8w": {
                "topic": "orders",
                "runs": {"0": [100, 50, 7, 3], "1": [0, 9]},
                "counts": {"0": [1, 1, 2, 1]},
            }
        },
        "carry": {"accept": {"6uO1je3BTk2YwDkLwxhW8w": {"topic": "orders", "runs": {"2": [3, 2]}}}},
    }


@given(acquired, sets, sets, st.integers(1, 2**62), st.booleans())
def test_offset_survives_a_round_trip(
    held: dict[TopicIdPartition, tuple[AcquiredRecords, ...]],
    accept: dict[TopicIdPartition, OffsetSet],
    reject: dict[TopicIdPartition, OffsetSet],
    seq: int,
    decides: bool,
) -> None:
    offset = StreamOffset(
        BILLING, seq, "query", "load", held, Carry(accept, reject), NAMES, decides
    )
    text = json.dumps(offset.to_json())
    read = parse(json.loads(text), BILLING)
    assert (read.seq, read.load, read.acquired, read.carry, read.decides) == (
        seq,
        "load",
        held,
        Carry(accept, reject),
        decides,
    )
    assert json.dumps(read.to_json()) == text


def test_offset_with_many_released_records_stays_small() -> None:
    """A thousand single records in each of ten partitions, alternately delivered once and twice."""
    held = {
        TopicIdPartition(ORDERS, partition): tuple(
            AcquiredRecords.of_range(10**9 + 7 * index, 10**9 + 7 * index + 1, 1 + index % 2)
            for index in range(1000)
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


SOUND = {
    "v": 1,
    "seq": 7,
    "group": "billing",
    "subscribe": ["orders"],
    "query": "8b1e",
    "load": "5f0c",
    "acquired": {
        "6uO1je3BTk2YwDkLwxhW8w": {
            "topic": "orders",
            "runs": {"0": [100, 50, 7, 3]},
            "counts": {"0": [1, 1, 2, 1]},
        }
    },
    "carry": {"accept": {"6uO1je3BTk2YwDkLwxhW8w": {"topic": "orders", "runs": {"0": [3, 2]}}}},
}
TOPIC = ("acquired", "6uO1je3BTk2YwDkLwxhW8w")


def test_the_sound_text_is_read() -> None:
    assert parse(SOUND, BILLING).to_json() == SOUND


@pytest.mark.parametrize(
    ("path", "lie"),
    [
        (("seq",), -1),
        (("seq",), 2**63),
        (("seq",), True),
        (("seq",), "../../7"),
        (("query",), "../../etc"),
        (("query",), "a.b"),
        (("query",), "q" * 65),
        (("query",), 7),
        (("load",), ".."),
        (("load",), "a/b"),
        (("load",), None),
        (("decides",), 1),
        (("decides",), None),
        (("group",), None),
        (("subscribe",), None),
        (("acquired",), []),
        (("acquired",), {"../../x": {"topic": "orders", "runs": {"0": [1, 1]}}}),
        (("acquired",), {"": {"topic": "orders", "runs": {"0": [1, 1]}}}),
        ((*TOPIC, "topic"), 7),
        ((*TOPIC, "counts"), {"0": [1, 10**30]}),
        ((*TOPIC, "runs"), {"-1": [1, 1]}),
        ((*TOPIC, "runs"), {str(2**31): [1, 1]}),
        ((*TOPIC, "runs"), {"9" * 10_000: [1, 1]}),
        ((*TOPIC, "runs"), {"0": [-1, 1]}),
        ((*TOPIC, "runs"), {"0": [1, 0]}),
        ((*TOPIC, "runs"), {"0": [1, 2**31]}),
        ((*TOPIC, "runs"), {"0": [2**63, 1]}),
        ((*TOPIC, "runs"), {"0": [9, 5, -9, 1]}),
        ((*TOPIC, "runs"), {"0": [1.5, 1]}),
        ((*TOPIC, "runs"), {"0": [1]}),
        ((*TOPIC, "runs"), {"0": "12"}),
        ((*TOPIC, "counts"), {"0": [1, 10**12]}),
        ((*TOPIC, "counts"), {"0": [0, 2]}),
        ((*TOPIC, "counts"), {"0": [40_000, 2]}),
        (("carry",), {"accept": 7}),
        (("carry",), "x"),
    ],
)
def test_inconsistent_checkpoint_is_refused(path: tuple[str, ...], lie: object) -> None:
    said = json.loads(json.dumps(SOUND))
    inner = said
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = lie
    with pytest.raises(CheckpointError, match="use a new checkpointLocation"):
        parse(said, BILLING)
