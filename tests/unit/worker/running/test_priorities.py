"""Priorities between the topics of a handler, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import App
from sharegroup.worker.decisions.topic_shares import TopicShares


def handled(
    backlog: dict[str, int], *, kind: str = "share_group", seconds: float = 2, **options: Any
) -> list[str]:
    """Run a handler that takes 100 ms, 4 at a time; return the topics of its records in order."""
    app = App("shop")
    seen: list[str] = []

    async def bill(order: str) -> None:
        seen.append(order)
        await clock.sleep_until(clock.now() + 0.1)

    getattr(app, kind)("billing", topics=(*backlog,), handler=bill, concurrency=4, **options)

    async def main() -> None:
        nonlocal clock
        async with app.test(patience_seconds=0.001) as t:
            clock = t._world.clock
            for topic, count in backlog.items():
                for _ in range(count):
                    await t.send(topic, topic.encode())
            await t.advance(seconds)

    clock: Any = None
    asyncio.run(main())
    return seen


@pytest.mark.parametrize("kind", ["share_group", "consumer_group"])
def test_topics_with_a_backlog_share_by_their_weights_and_none_starves(kind: str) -> None:
    order = handled(
        {"bulk": 200, "normal": 200, "urgent": 200},
        kind=kind,
        seconds=5,
        priorities={"urgent": 10, "normal": 3},
    )
    counts = {topic: order[10:150].count(topic) for topic in ("urgent", "normal", "bulk")}
    assert 90 <= counts["urgent"] <= 110
    assert 24 <= counts["normal"] <= 36
    assert 7 <= counts["bulk"] <= 15


def test_topic_alone_has_all_the_room() -> None:
    # Four at a time, each for 0.1 s: 40 in a second.
    alone = handled({"bulk": 200, "urgent": 0}, priorities={"urgent": 100})
    assert len(alone) >= 78


def test_topic_that_is_drained_leaves_its_room_to_the_others() -> None:
    order = handled({"bulk": 200, "urgent": 20}, priorities={"urgent": 100})
    assert order.index("urgent") < 8
    assert order.count("urgent") == 20
    assert len(order) >= 76


def test_topic_gains_nothing_from_the_time_in_which_it_was_empty() -> None:
    shares = TopicShares({"a": 1, "b": 1})
    for _ in range(100):
        shares.took("a", asked=1, got=1)
    shares.took("b", asked=1, got=1)
    # Not a hundred records of `b` before the next one of `a`.
    assert (shares.room("b", 8), shares.room("a", 8)) == (0, 4)


def test_room_of_a_topic_is_its_part_by_weight_and_at_least_one_record() -> None:
    shares = TopicShares({"urgent": 10, "normal": 3, "bulk": 1})
    for topic in ("urgent", "normal", "bulk"):
        shares.took(topic, asked=0, got=0)
    assert [shares.room(topic, 28) for topic in ("urgent", "normal", "bulk")] == [20, 6, 2]
    assert [shares.room(topic, 2) for topic in ("urgent", "normal", "bulk")] == [1, 1, 1]
    assert shares.room("urgent", 0) == 0


def test_topic_that_cannot_take_holds_up_no_other() -> None:
    shares = TopicShares({"a": 1, "b": 1})
    shares.took("a", asked=1, got=1)
    shares.took("b", asked=2, got=2)
    assert shares.room("b", 8) == 0
    assert shares.took("a", asked=8, got=0)
    assert shares.room("b", 8) == 4


@pytest.mark.parametrize(
    ("priorities", "text"),
    [
        ({"urgnt": 3}, "priorities: topic 'urgnt' is none of the handler's"),
        ({"urgent": 0}, "priorities: 'urgent' has 0; expected a weight from 1 to 1000"),
        ({"urgent": 1.5}, "expected a weight from 1 to 1000"),
        (["urgent"], "priorities=.*; expected a dict of the weights of topics"),
    ],
)
def test_weights_that_make_no_sense_are_refused(priorities: Any, text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        handled({"bulk": 0, "urgent": 0}, priorities=priorities)
