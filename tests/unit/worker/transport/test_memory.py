"""The broker that isn't there: locks, counts, time and failed writes as a real one has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from sharegroup.client import IllegalStateError
from sharegroup.core.delivery.delivery import SharePartitionLimits
from sharegroup.errors import MessageTooLarge
from sharegroup.worker.transport.memory import MemoryOutbox
from sharegroup.worker.transport.memory_clock import START_WALL_MS, MemoryClock
from sharegroup.worker.transport.memory_log import MemoryLog
from sharegroup.worker.transport.memory_source import MemoryGroup, MemorySource, Place, Standing

FIRST = Place("orders", 0, 0)


class World:
    """One topic, one group, and as many members as a test asks for."""

    def __init__(self, limits: SharePartitionLimits = SharePartitionLimits()) -> None:  # noqa: B008
        self.clock = MemoryClock()
        self.log = MemoryLog(self.clock)
        self.group = MemoryGroup("billing", self.log, limits)
        self.outbox = MemoryOutbox(self.log)

    def member(self, name: str = "one") -> MemorySource:
        return MemorySource(name, self.group, "orders", self.log)

    def send(self, *values: bytes) -> None:
        for value in values:
            self.log.append("orders", value)

    def pass_seconds(self, seconds: float) -> None:
        self.clock.move_to(self.clock.now() + seconds)


def run(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def runs() -> None:
        asyncio.run(test())

    runs.__name__ = test.__name__
    return runs


@run
async def test_take_returns_available_records_up_to_the_limit() -> None:
    world = World()
    world.send(b"a", b"b", b"c")
    member = world.member()
    taken = await member.take(2, 0)
    assert [(record.offset, record.value, record.delivery_count) for record in taken] == [
        (0, b"a", 1),
        (1, b"b", 1),
    ]
    assert [record.value for record in await member.take(2, 0)] == [b"c"]
    assert await member.take(2, 0) == ()


@run
async def test_take_waits_for_a_record() -> None:
    world = World()
    taking = asyncio.create_task(world.member().take(1, 5.0))
    await asyncio.sleep(0)
    world.send(b"a")
    assert [record.value for record in await taking] == [b"a"]


@run
async def test_take_ends_with_nothing_when_its_time_is_over() -> None:
    world = World()
    taking = asyncio.create_task(world.member().take(1, 5.0))
    await asyncio.sleep(0)
    assert world.clock.next_due() is None  # An idle wait is nothing to wait for.
    world.pass_seconds(5)
    assert await taking == ()


@run
async def test_two_members_never_have_the_same_record() -> None:
    world = World()
    world.send(b"a", b"b")
    (first,) = await world.member("one").take(1, 0)
    (second,) = await world.member("two").take(5, 0)
    assert (first.value, second.value) == (b"a", b"b")


@run
async def test_settled_records_have_their_standing() -> None:
    world = World()
    world.send(b"a", b"b", b"c", b"d")
    accepted, rejected, released = await world.member().take(3, 0)
    accepted.accept()
    rejected.reject()
    released.release()
    standings = [world.group.standing(Place("orders", 0, offset)) for offset in range(4)]
    assert standings == [
        Standing.ACCEPTED,
        Standing.REJECTED,
        Standing.WAITING,
        Standing.WAITING,
    ]


@run
async def test_released_record_is_redelivered_with_a_higher_count() -> None:
    world = World()
    world.send(b"a")
    member = world.member()
    (delivery,) = await member.take(1, 0)
    delivery.release()
    (again,) = await member.take(1, 0)
    assert (again.offset, again.delivery_count) == (0, 2)
    with pytest.raises(IllegalStateError, match=r"can't be settled with ACCEPT"):
        delivery.accept()


@run
async def test_fifth_release_is_the_last() -> None:
    world = World()
    world.send(b"a")
    member = world.member()
    for count in range(1, 6):
        (delivery,) = await member.take(1, 0)
        assert delivery.delivery_count == count
        delivery.release()
    assert await member.take(1, 0) == ()
    assert world.group.standing(FIRST) is Standing.EXHAUSTED


@run
async def test_lock_is_renewed_while_its_process_runs() -> None:
    world = World()
    world.send(b"a")
    (delivery,) = await world.member("one").take(1, 0)
    for _ in range(100):
        world.pass_seconds(7)
        assert delivery.deadline > world.clock.now()
    assert await world.member("two").take(1, 0) == ()
    delivery.accept()
    assert world.group.standing(FIRST) is Standing.ACCEPTED


@run
async def test_lock_ends_in_a_group_that_does_not_renew() -> None:
    world = World(SharePartitionLimits(lock_ms=30_000, renewal=False))
    world.send(b"a")
    (delivery,) = await world.member("one").take(1, 0)
    taking = asyncio.create_task(world.member("two").take(1, 60))
    await asyncio.sleep(0)
    world.pass_seconds(29.9)
    assert world.group.standing(FIRST) is Standing.LOCKED
    world.pass_seconds(0.1)
    (again,) = await taking
    assert again.delivery_count == 2
    delivery.accept()  # It is too late and has no effect.
    assert world.group.standing(FIRST) is Standing.LOCKED


@run
async def test_lost_lock_ends_immediately_and_its_record_is_redelivered() -> None:
    world = World()
    world.send(b"a")
    member = world.member("one")
    (delivery,) = await member.take(1, 0)
    member.lose(FIRST)
    assert delivery.deadline == world.clock.now()
    delivery.renew()
    assert delivery.deadline == world.clock.now()
    assert [record.delivery_count for record in await world.member("two").take(1, 0)] == [2]


@run
async def test_actions_of_a_dead_process_have_no_effect() -> None:
    world = World()
    world.send(b"a", b"b")
    member = world.member("one")
    first, second = await member.take(2, 0)
    member.cut()
    world.outbox.cut()
    first.accept()
    second.renew()
    answer = asyncio.ensure_future(world.outbox.send("orders.dead", b"a"))
    again = await world.member("two").take(2, 0)
    assert [(record.value, record.delivery_count) for record in again] == [(b"a", 2), (b"b", 2)]
    assert (list(world.log.records("orders.dead")), answer.done()) == ([], False)


@run
async def test_closed_member_releases_its_records() -> None:
    world = World()
    world.send(b"a", b"b", b"c")
    member = world.member("one")
    taken = await member.take(3, 0)
    taken[0].accept()
    assert await member.close(1.0) == 2
    assert [record.value for record in await world.member("two").take(3, 0)] == [b"b", b"c"]


@run
async def test_quiet_member_takes_no_records_until_it_resumes() -> None:
    world = World()
    world.send(b"a")
    member = world.member()
    member.quiet(delivered_below=4)
    assert await member.take(1, 0) == ()
    member.resume()
    assert [record.value for record in await member.take(1, 0)] == [b"a"]


@run
async def test_write_returns_the_position_of_the_record() -> None:
    world = World()
    world.clock.move_to(world.clock.now() + 1.5)
    written = await world.outbox.send("dead", b"v", key=b"k", headers=[("h", None)])
    assert (written.topic, written.partition, written.offset) == ("dead", 0, 0)
    assert written.timestamp_ms == START_WALL_MS + 1_500
    (lying,) = world.log.records("dead")
    assert (lying.key, lying.value, lying.headers) == (b"k", b"v", (("h", None),))


@run
async def test_log_append_time_overrides_that_of_the_sender() -> None:
    world = World()
    world.log.create("tier", log_append_time=True)
    stamped = await world.outbox.send("tier", b"", timestamp_ms=5)
    own = await world.outbox.send("dead", b"", timestamp_ms=5)
    assert (stamped.timestamp_ms, own.timestamp_ms) == (START_WALL_MS, 5)


@run
async def test_records_of_a_key_are_in_one_partition() -> None:
    world = World()
    world.log.create("many", partitions=3)
    keyed = {(await world.outbox.send("many", b"", key=b"k")).partition for _ in range(5)}
    others = {(await world.outbox.send("many", b"")).partition for _ in range(3)}
    assert (len(keyed), others) == (1, {0, 1, 2})


@run
async def test_failing_topic_fails_until_it_is_mended() -> None:
    world = World()
    world.log.fail("dead", MessageTooLarge("too large"))
    with pytest.raises(MessageTooLarge):
        await world.outbox.send("dead", b"")
    world.log.mend("dead")
    assert (await world.outbox.send("dead", b"")).offset == 0


@run
async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock = MemoryClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep_until(1_000 + seconds)
        woken.append((name, clock.now()))

    sleepers = [
        asyncio.create_task(sleep(*arguments)) for arguments in (("b", 2), ("a", 1), ("never", 9))
    ]
    await asyncio.sleep(0)
    assert clock.next_due() == 1_001
    for when in (1_001, 1_002, 1_003):
        clock.move_to(when)
        await asyncio.sleep(0)
    assert woken == [("a", 1_001), ("b", 1_002)]
    sleepers[2].cancel()
    await asyncio.sleep(0)
    assert clock.next_due() is None
