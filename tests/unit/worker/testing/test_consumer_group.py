"""Handlers of consumer groups in virtual time: order, retries, letters, and crashes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from sharegroup.client.records import IllegalStateError
from sharegroup.errors import InvalidConfig, MessageTooLarge
from sharegroup.worker import App, Record, Reject, Release, Retry, RouteKind
from sharegroup.worker.events import Event
from sharegroup.worker.records.record import AlreadyDecided
from sharegroup.worker.testing import AppTest, app_test


def run(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def runs() -> None:
        asyncio.run(test())

    runs.__name__ = test.__name__
    return runs


QUICK = Retry(max_attempts=3, initial_delay="2s", multiplier=1, jitter=0)


@run
async def test_records_run_and_their_offsets_are_committed() -> None:
    app = App("audit")
    seen: list[bytes] = []

    @app.consumer_group("audit", topics="orders")
    async def audit(order: bytes) -> None:
        seen.append(order)

    async with app.test() as t:
        for number in range(5):
            await t.send("orders", b"%d" % number)
        await t.settle()
        assert seen == [b"0", b"1", b"2", b"3", b"4"]
        assert t.outcomes == {"accepted": 5}
        await t.advance("3s")
        assert t.committed("audit", "orders") == {0: 5}
    assert audit.route.kind is RouteKind.CONSUMER


@run
async def test_records_of_a_key_run_in_order_and_others_beside_them() -> None:
    app = App("audit")
    running: set[bytes] = set()
    most = 0
    order: dict[bytes, list[int]] = defaultdict(list)
    gate = asyncio.Event()

    @app.consumer_group("audit", topics="orders", order_by="key", concurrency=8)
    async def audit(number: int, record: Record) -> None:
        nonlocal most
        key = record.key or b""
        assert key not in running
        running.add(key)
        most = max(most, len(running))
        await gate.wait()
        order[key].append(number)
        running.discard(key)

    async with app.test(patience_seconds=0.05) as t:
        for number in range(40):
            await t.send(audit, number, key=f"k{number % 4}")
        await t.settle()
        gate.set()
        await t.settle()
    assert most == 4
    assert order == {b"k%d" % key: list(range(key, 40, 4)) for key in range(4)}


@run
async def test_order_by_partition_runs_one_record_of_a_partition_at_a_time() -> None:
    app = App("audit")
    seen: list[int] = []
    running = 0

    @app.consumer_group("audit", topics="orders", order_by="partition", concurrency=8)
    async def audit(number: int) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        seen.append(number)
        running -= 1

    async with app.test() as t:
        for number in range(20):
            await t.send(audit, number, key=f"k{number}")
        await t.settle()
    assert seen == list(range(20))


@run
async def test_a_failing_record_blocks_its_key_and_no_other() -> None:
    app = App("audit")
    seen: list[str] = []

    @app.consumer_group("audit", topics="orders", order_by="key", retry=QUICK)
    async def audit(name: str) -> None:
        seen.append(name)
        if name == "a1" and seen.count("a1") < 3:
            raise ValueError

    async with app.test() as t:
        for name in ("a1", "a2", "b1"):
            await t.send(audit, name, key=name[0])
        await t.settle()
        assert seen == ["a1", "b1"]
        await t.advance("3s")
        # The offset waits for the record that blocks; b1 is in the metadata.
        assert t.committed("audit", "orders") == {0: 0}
        await t.advance("10s")
        assert seen == ["a1", "b1", "a1", "a1", "a2"]
        assert t.committed("audit", "orders") == {0: 3}
        assert t.in_topic("audit.retry") == []


@run
async def test_a_record_that_fails_while_the_worker_stops_is_not_overtaken() -> None:
    app = App("audit")
    seen: list[str] = []

    @app.consumer_group("audit", topics="orders", order_by="key", retry=QUICK)
    async def audit(name: str) -> None:
        seen.append(name)
        if len(seen) == 1:
            clock = t._world.clock
            await clock.sleep_until(clock.now() + 1)
            raise ValueError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_test, "STOP_GRACE_SECONDS", 5.0)
        t = app.test(patience_seconds=0.05)
        await t.__aenter__()
    async with AsyncExitStack() as stack:
        stack.push_async_exit(t)
        for name in ("a1", "a2"):
            await t.send(audit, name, key=name[0])
        await t.settle()
        await t._stop()
        assert seen == ["a1"]
        assert retried(t) == []
        assert t.committed("audit", "orders") == {0: 0}
        await t._start()
        await t.advance("10s")
        assert seen == ["a1", "a1", "a2"]


@run
async def test_a_record_whose_handler_does_not_end_is_not_overtaken() -> None:
    app = App("audit")
    seen: list[str] = []
    may_end = asyncio.Event()

    @app.consumer_group(
        "audit", topics="orders", order_by="key", retry=QUICK, max_handling="1s", concurrency=2
    )
    async def audit(name: str) -> None:
        seen.append(name)
        while len(seen) == 1 and not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    async with app.test(patience_seconds=0.05) as t:
        for name in ("a1", "a2"):
            await t.send(audit, name, key=name[0])
        await t.settle()
        await t.advance("60s")
        assert retried(t) == []
        assert seen == ["a1", "a1", "a2"]
        may_end.set()


def retried(t: AppTest) -> list[str]:
    """The topics of the retries, one for each record that was written there."""
    return [record.topic for record in t._world.log.written if record.topic.startswith("audit.")]


@run
async def test_a_record_blocks_for_longer_than_records_of_share_groups_are_held() -> None:
    app = App("audit")
    seen: list[str] = []

    @app.consumer_group(
        "audit", topics="orders", order_by="key",
        retry=Retry(max_attempts=2, initial_delay="10m", jitter=0),
    )  # fmt: skip
    async def audit(name: str) -> None:
        seen.append(name)
        if seen == ["a1"]:
            raise ValueError

    async with app.test() as t:
        for name in ("a1", "a2"):
            await t.send(audit, name, key="a")
        await t.advance("9m")
        assert seen == ["a1"]
        await t.advance("2m")
        assert seen == ["a1", "a1", "a2"]


@run
async def test_a_failing_record_may_be_overtaken_by_way_of_the_retry_topic() -> None:
    app = App("audit")
    seen: list[str] = []

    @app.consumer_group(
        "audit", topics="orders", order_by="key", on_failure="retry_topic",
        retry=Retry(max_attempts=2, initial_delay="1m", jitter=0),
    )  # fmt: skip
    async def audit(name: str) -> None:
        seen.append(name)
        if seen == ["a1"]:
            raise ValueError

    async with app.test() as t:
        for name in ("a1", "a2"):
            await t.send(audit, name, key="a")
        await t.advance("2s")
        assert seen == ["a1", "a2"]
        assert t.committed("audit", "orders") == {0: 2}
        await t.advance("5m")
        assert seen == ["a1", "a2", "a1"]
        assert t.outcomes == {"accepted": 2}


@run
async def test_letters_and_rejects_are_those_of_share_groups() -> None:
    app = App("audit")

    @app.consumer_group("audit", topics="orders", retry=None)
    async def audit(number: int) -> None:
        if number == 1:
            raise Reject("no")
        if number == 2:
            raise ValueError

    async with app.test() as t:
        records = [await t.send(audit, number) for number in (1, 2, 3)]
        bad = await t.send("orders", b"no number")
        await t.advance("2s")
        assert [record.outcome for record in records] == [
            "dead_lettered", "dead_lettered", "accepted",
        ]  # fmt: skip
        assert bad.outcome == "dead_lettered"
        assert [letter.group for letter in t.dead_letters] == ["audit"] * 3
        assert t.committed("audit", "orders") == {0: 4}


@run
async def test_a_released_record_keeps_its_place() -> None:
    await keeps_its_place(Release(), "2s")


@run
async def test_a_record_released_with_a_delay_keeps_its_place_for_that_time() -> None:
    await keeps_its_place(Release(delay="1m"), "59s", "2s")


async def keeps_its_place(release: Release, *waits: str) -> None:
    app = App("audit")
    seen: list[str] = []

    @app.consumer_group("audit", topics="orders", order_by="key")
    async def audit(name: str) -> None:
        seen.append(name)
        if seen.count("a1") == 1 and name == "a1":
            raise release

    async with app.test() as t:
        for name in ("a1", "a2"):
            await t.send(audit, name, key="a")
        await t.settle()
        for wait in waits:
            assert seen == ["a1"]
            await t.advance(wait)
        assert seen == ["a1", "a1", "a2"]


@run
async def test_after_a_crash_finished_records_are_skipped_and_others_delivered_again() -> None:
    app = App("audit")
    seen: list[tuple[str, int]] = []
    stuck = asyncio.Event()

    @app.consumer_group("audit", topics="orders", order_by="key")
    async def audit(name: str, record: Record) -> None:
        seen.append((name, record.delivery_attempt))
        if name == "slow" and record.delivery_attempt == 1:
            await stuck.wait()

    async with app.test(patience_seconds=0.05) as t:
        for name in ("first", "slow", "third", "fourth"):
            await t.send(audit, name, key=name)
        await t.advance("2s")
        assert sorted(seen) == [("first", 1), ("fourth", 1), ("slow", 1), ("third", 1)]
        assert t.committed("audit", "orders") == {0: 1}
        await t.lose_partitions("audit")
        await t.advance("2s")
        assert seen[4:] == [("slow", 2)]
        assert t.committed("audit", "orders") == {0: 4}
        await t.send(audit, "fifth", key="f")
        await t.settle()
        assert seen[5:] == [("fifth", 1)], "a new record was never delivered before"


@run
async def test_a_record_that_ends_its_process_becomes_a_letter() -> None:
    app = App("audit")
    seen: list[tuple[str, int]] = []
    stuck = asyncio.Event()

    @app.consumer_group("audit", topics="orders")
    async def audit(name: str, record: Record) -> None:
        seen.append((name, record.delivery_attempt))
        if name == "poison":
            await stuck.wait()

    async with app.test(patience_seconds=0.02) as t:
        others = [await t.send(audit, f"good {number}") for number in range(3)]
        poison = await t.send(audit, "poison")
        for _ in range(12):
            await t.advance("10s")
            if poison.outcome == "dead_lettered":
                break
            await t.lose_partitions("audit")
        assert poison.outcome == "dead_lettered"
        assert {record.outcome for record in others} == {"accepted"}
        assert len([name for name, _ in seen if name == "poison"]) <= 7


@run
async def test_a_suspect_is_not_overtaken_by_records_of_its_key() -> None:
    """It stays in its place until it is a letter, also when it waits for its turn to run alone."""
    app = App("audit")
    seen: list[str] = []
    stuck = asyncio.Event()

    @app.consumer_group("audit", topics="orders", order_by="key")
    async def audit(name: str) -> None:
        seen.append(name)
        if name == "poison":
            await stuck.wait()

    async with app.test(patience_seconds=0.02) as t:
        poison = await t.send(audit, "poison", key="k")
        behind = [await t.send(audit, f"behind {number}", key="k") for number in range(3)]
        others = [await t.send(audit, f"other {number}", key=f"{number}") for number in range(3)]
        for _ in range(12):
            await t.advance("10s")
            if poison.outcome == "dead_lettered":
                break
            assert not [name for name in seen if name.startswith("behind")]
            await t.lose_partitions("audit")
        await t.advance("10s")
        assert poison.outcome == "dead_lettered"
        assert seen.count("poison") <= 6
        assert [name for name in seen if name.startswith("behind")] == [
            "behind 0", "behind 1", "behind 2",
        ]  # fmt: skip
        assert {record.outcome for record in (*behind, *others)} == {"accepted"}


@run
async def test_lost_partitions_cancel_their_handlers_and_the_next_owner_runs_them() -> None:
    app = App("audit")
    events: list[Event] = []
    app.on("*", events.append)
    ended: list[str] = []
    stuck = asyncio.Event()

    @app.consumer_group("audit", topics="orders", order_by="key")
    async def audit(name: str) -> None:
        try:
            await stuck.wait()
        finally:
            ended.append(name)

    async with app.test(patience_seconds=0.05) as t:
        await t.send(audit, "one", key="a")
        await t.send(audit, "two", key="a")
        await t.settle()
        await t.lose_partitions("audit")
        await t.settle()
        assert ended == ["one"]
        stuck.set()
        await t.settle()
        assert ended == ["one", "one", "two"]
    names = [event.name for event in events if event.name.startswith("partitions")]
    assert names.count("partitions.lost") == 2  # The topic's, and the group's own topic's.
    assert names[-1] == "partitions.revoked"


@run
async def test_a_partition_is_paused_and_resumed() -> None:
    app = App("audit")
    seen: list[int] = []

    @app.consumer_group("audit", topics="orders")
    async def audit(number: int) -> None:
        seen.append(number)

    async with app.test() as t:
        await t.send(audit, 1)
        await t.settle()
        t.partitions("audit").pause("orders", 0)
        await t.send(audit, 2)
        await t.advance("5s")
        assert seen == [1]
        assert t.partitions("audit").paused == (("orders", 0),)
        t.partitions("audit").resume("orders", 0)
        await t.advance("1s")
        assert seen == [1, 2]
        with pytest.raises(IllegalStateError, match="does not own partition 7 of topic 'orders'"):
            t.partitions("audit").pause("orders", 7)
        with pytest.raises(IllegalStateError, match="runs no consumer group 'other'"):
            t.partitions("other")


@run
async def test_a_seek_waits_for_handlers_and_goes_on_at_its_offset() -> None:
    app = App("audit")
    seen: list[int] = []
    gate = asyncio.Event()

    @app.consumer_group("audit", topics="orders", order_by="key")
    async def audit(number: int) -> None:
        if number == 3:
            await gate.wait()
        seen.append(number)

    async with app.test(patience_seconds=0.05) as t:
        for number in range(5):
            await t.send(audit, number, key=f"k{number}")
        await t.advance("2s")
        assert seen == [0, 1, 2, 4]
        seeking = asyncio.create_task(t.partitions("audit").seek("orders", 0, 2))
        await t.advance("1s")
        assert not seeking.done()
        gate.set()
        await t.settle()
        await seeking
        await t.advance("2s")
        assert seen == [0, 1, 2, 4, 3, 2, 3, 4]
        assert t.committed("audit", "orders") == {0: 5}


@run
async def test_records_not_begun_are_given_up_with_their_partition() -> None:
    app = App("audit")
    seen: list[int] = []
    gate = asyncio.Event()

    @app.consumer_group("audit", topics="orders", order_by="partition")
    async def audit(number: int) -> None:
        if number == 0:
            await gate.wait()
        seen.append(number)

    async with app.test(patience_seconds=0.05) as t:
        for number in range(5):
            await t.send(audit, number)
        await t.settle()
        seeking = asyncio.create_task(t.partitions("audit").seek("orders", 0, 4))
        await t.advance("1s")
        gate.set()
        await t.advance("2s")
        await seeking
        assert seen == [0, 4]


@run
async def test_records_are_finished_by_hand_when_they_are_stored_together() -> None:
    app = App("audit")
    gathered: list[Record] = []

    @app.consumer_group("audit", topics="orders", order_by="key", commit="manual")
    async def audit(number: int, record: Record) -> None:
        gathered.append(record)
        if number == 3:
            raise Reject("a letter needs no finish")

    async with app.test() as t:
        sent = [await t.send(audit, number, key="one") for number in range(4)]
        await t.advance("2s")
        assert len(gathered) == 4, "the key goes on"
        assert t.committed("audit", "orders") == {0: 0}
        assert gathered[1].finish()
        assert gathered[0].finish()
        await t.advance("2s")
        assert t.committed("audit", "orders") == {0: 2}
        with pytest.raises(AlreadyDecided):
            gathered[0].finish()
        await t.lose_partitions("audit")
        await t.advance("2s")
        assert len(gathered) == 5, "only the third one runs again"
        assert not gathered[2].finish()
        assert gathered[4].finish()
        await t.advance("2s")
        assert t.committed("audit", "orders") == {0: 4}
        assert [record.outcome for record in sent[2:]] == ["accepted", "dead_lettered"]


@run
async def test_finish_in_a_handler_is_accept() -> None:
    app = App("audit")

    @app.consumer_group("audit", topics="orders", commit="manual")
    async def audit(number: int, record: Record) -> None:
        record.finish()

    async with app.test() as t:
        await t.send(audit, 1)
        await t.advance("2s")
        assert t.committed("audit", "orders") == {0: 1}


def billing(failing: list[str]) -> tuple[App, Any]:
    """An application that bills each order once, in transactions."""
    app = App("billing")

    @app.share_group("mail", topics="billed")
    async def mail(name: str) -> None: ...

    @app.consumer_group(
        "billing", topics="orders", order_by="key", exactly_once=True,
        retry=Retry(max_attempts=2, initial_delay="1s", jitter=0),
    )  # fmt: skip
    async def bill(name: str) -> None:
        written = await mail.send(name, key="k")
        assert (written.topic, written.offset) == ("billed", -1)
        if name in failing:
            raise ValueError(name)

    return app, bill


def values(t: AppTest, topic: str) -> list[bytes | None]:
    return [record.value for record in t.in_topic(topic)]


@run
async def test_outputs_are_written_with_the_offsets_of_their_records() -> None:
    app, bill = billing([])
    async with app.test() as t:
        await t.send(bill, "a", key="a")
        await t.settle()
        assert values(t, "billed") == []
        assert t.committed("billing", "orders") == {0: 0}
        await t.advance("100ms")
        assert values(t, "billed") == [b"a"]
        assert t.committed("billing", "orders") == {0: 1}
        await t.send(bill, "b", key="a")
        await t.advance("1s")
        assert values(t, "billed") == [b"a", b"b"]


@run
async def test_a_crash_before_the_transaction_runs_the_handler_again() -> None:
    app, bill = billing([])
    async with app.test() as t:
        await t.send(bill, "a", key="a")
        await t.settle()
        await t.crash()
        await t.advance("1s")
        await t.crash()
        await t.advance("1s")
        assert values(t, "billed") == [b"a"]


@run
async def test_a_run_that_fails_sends_nothing() -> None:
    failing = ["a"]
    app, bill = billing(failing)
    async with app.test() as t:
        await t.send(bill, "a", key="a")
        await t.advance("500ms")
        assert values(t, "billed") == []
        failing.clear()
        await t.advance("2s")
        assert values(t, "billed") == [b"a"]


@run
async def test_a_letter_is_written_with_the_offset() -> None:
    app, bill = billing(["a"])
    async with app.test() as t:
        t.fail_writes("billing.dead")
        sent = await t.send(bill, "a", key="a")
        await t.advance("3s")
        assert t.committed("billing", "orders") == {0: 0}
        assert t.dead_letters == []
        t.mend_writes("billing.dead")
        await t.advance("2s")
        assert [letter.value for letter in t.dead_letters] == [b"a"]
        assert t.committed("billing", "orders") == {0: 1}
        assert values(t, "billed") == []
        assert sent.outcome == "dead_lettered"


@run
async def test_a_send_after_the_handler_has_returned_is_refused() -> None:
    app = App("billing")
    late: list[BaseException] = []
    gate = asyncio.Event()

    @app.share_group("mail", topics="billed")
    async def mail(name: str) -> None: ...

    async def send_late() -> None:
        await gate.wait()
        try:
            await mail.send("late")
        except RuntimeError as error:
            late.append(error)

    tasks = []

    @app.consumer_group("billing", topics="orders", exactly_once=True)
    async def bill(name: str) -> None:
        tasks.append(asyncio.create_task(send_late()))

    async with app.test() as t:
        await t.send(bill, "a")
        await t.settle()
        gate.set()
        await t.advance("1s")
        assert "await all sends in the handler" in str(late[0])
        assert values(t, "billed") == []


@run
async def test_an_output_that_is_too_large_fails_its_handler() -> None:
    app = App("billing")

    @app.share_group("mail", topics="billed")
    async def mail(name: str) -> None: ...

    @app.consumer_group("billing", topics="orders", exactly_once=True, retry=None)
    async def bill(name: str) -> None:
        await mail.send("x" * 50_000_000)

    async with app.test() as t:
        sent = await t.send(bill, "a")
        await t.advance("1s")
        assert sent.outcome == "dead_lettered"
        assert isinstance(sent.errors[0], MessageTooLarge)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"exactly_once": "yes"}, "expected True or False"),
        ({"exactly_once": True, "batch": 5}, "its payload is not annotated"),
        ({"exactly_once": True, "commit": "manual"}, "finishes records after their outputs"),
        ({"transactional": True}, "exactly_once=True"),
        ({"commit": "each"}, "expected 'after' or 'manual'"),
        ({"group_configs": {}}, "settings of a consumer group are not declared here"),
        ({"order_by": "topic"}, "expected 'key' or 'partition', or a function"),
        ({"on_failure": "block"}, "without order_by no record waits behind another"),
        ({"unreadable": "release"}, "unreadable='release': no other member of a consumer group"),
        ({"on_failure": "letter"}, "expected block or retry_topic"),
        ({"group_protocol": "share"}, "expected 'consumer' or 'classic'"),
    ],
)
def test_options_are_refused_by_name(options: dict[str, object], text: str) -> None:
    app = App("audit")
    with pytest.raises(InvalidConfig, match=text):
        app.consumer_group("audit", topics="orders", handler=lambda order: None, **options)  # type: ignore[call-overload]  # Refused at run time.


def test_a_group_id_belongs_to_one_kind() -> None:
    app = App("audit")
    app.consumer_group("audit", topics="orders", handler=lambda order: None, name="one")
    with pytest.raises(InvalidConfig, match="belongs to one kind"):
        app.share_group("audit", topics="other", handler=lambda order: None, name="two")
