"""Commands for waiting records, carried out by the owners of their partitions, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

import pytest

from sharegroup.dead_letters.story_headers import story_of
from sharegroup.errors import MessageTooLarge, NetworkException, NotEnoughReplicas
from sharegroup.testing import virtual_time
from sharegroup.waiting.control_records import (
    ANSWER,
    COMMAND,
    Answer,
    Command,
    Forgotten,
    Intent,
    Place,
    Reply,
    encoded,
    key_of,
    parsed,
)
from sharegroup.waiting.done_offsets import OFFSETS_MAX
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.ports import WrittenRecord
from sharegroup.worker.retrying import control_state
from sharegroup.worker.retrying.control_state import GRACE_MS, KEPT_MS, ControlState
from sharegroup.worker.retrying.shelf import Shelf
from sharegroup.worker.retrying.steering import COMMANDED_BYTES, COMMANDS_TOGETHER, Steering
from sharegroup.worker.retrying.tier_log import Committed, TierPartition, TierRecord
from sharegroup.worker.retrying.tier_mover import TIDY_MS
from sharegroup.worker.retrying.tier_moves import MovedRecord
from sharegroup.worker.retrying.waiting import Moment, waiting_of
from tests.unit.worker.retrying.cluster import (
    SESSION_SECONDS,
    START_MS,
    Cluster,
    LoopClock,
    Lying,
    Process,
)

CONTROL = "g.retry.control"
SEEN_SECONDS = 1.1
"""In which a command is seen and carried out."""
_asks = count()


def play(scene: Callable[[Cluster], Awaitable[None]], **cluster: int) -> None:
    async def run() -> None:
        before = asyncio.all_tasks()
        await scene(Cluster(is_steered=True, **cluster))
        for task in asyncio.all_tasks() - before:
            task.cancel()

    virtual_time.run(run())


def steered(cluster: Cluster, **options: object) -> Process:
    return Process(cluster, **options)  # type: ignore[arg-type]


async def replace_owner(cluster: Cluster, owner: Process) -> None:
    """Kill the owner, and let the next one move what is due in the next 200 seconds."""
    await owner.kill()
    steered(cluster)
    await asyncio.sleep(200)


def append_waiting(cluster: Cluster, number: int) -> None:
    """Append a record that is due in two minutes, with its number as the value."""
    now_ms = cluster.clock.wall_ms()
    numbers = {"due": now_ms + 120_000, "delay": 120_000, "written": now_ms}
    headers = [
        ("__sharegroup.id", b"id%d" % number),
        *((f"__sharegroup.{name}", b"%d" % value) for name, value in numbers.items()),
    ]
    cluster.append("g.retry.2m", b"%d" % number, None, headers)


def waiting(cluster: Cluster, value: bytes) -> Lying:
    """The last record with this value in a tier."""
    found = [
        record
        for topic in cluster.topics
        if topic.startswith("g.retry.") and topic != CONTROL
        for record in cluster.lying(topic)
        if record.value == value
    ]
    return max(found, key=lambda record: record.timestamp_ms)


def command(
    cluster: Cluster, intent: Intent, record: Lying, *, record_id: str | None = None
) -> str:
    """Write a command for a record; returns its name."""
    ask = f"ask{next(_asks)}"
    record_id = record_id or story_of(record.headers).id
    assert record_id is not None
    given = Command(
        record_id=record_id, intent=intent, place=Place(*record[:3]), ask=ask, by="anna",
        asked_ms=cluster.clock.wall_ms(),
    )  # fmt: skip
    key, value = encoded(given)
    cluster.append(CONTROL, value, key, (), 0)
    return ask


def answers(cluster: Cluster) -> dict[str, Answer]:
    """The answer to each command, by its name."""
    found = [parsed(record.key, record.value) for record in cluster.lying(CONTROL)]
    return {reply.ask: reply.answer for reply in found if isinstance(reply, Reply)}


def ends(cluster: Cluster) -> Counter[tuple[bytes | None, bool]]:
    """What came to the own topic, and whether it was cancelled."""
    return Counter(
        (record.value, story_of(record.headers).cancelled_by is not None)
        for record in cluster.lying("g.retry")
    )


def test_record_runs_now_and_its_original_is_passed_over() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        await process.later(b"a", 300)
        await process.later(b"b", 300)
        ask = command(cluster, Intent.RUN, waiting(cluster, b"b"))
        await asyncio.sleep(SEEN_SECONDS)
        (record,) = cluster.lying("g.retry")
        story = story_of(record.headers)
        assert (record.value, story.cancelled_by, story.failures) == (b"b", None, 0)
        assert story.due_ms is not None
        assert abs(story.due_ms - cluster.clock.wall_ms()) < 1_100, "it is due now"
        assert not [name for name, _ in record.headers if name.endswith((".delay", ".written"))]
        assert answers(cluster) == {ask: Answer.DONE}
        await asyncio.sleep(400)
        assert ends(cluster) == {(b"a", False): 1, (b"b", False): 1}

    play(scene)


def test_cancelled_record_is_marked_for_the_worker_that_makes_the_letter() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        await process.later(b"a", 300)
        command(cluster, Intent.CANCEL, waiting(cluster, b"a"))
        await asyncio.sleep(SEEN_SECONDS)
        (record,) = cluster.lying("g.retry")
        assert story_of(record.headers).cancelled_by == "anna"
        await asyncio.sleep(400)
        assert ends(cluster) == {(b"a", True): 1}

    play(scene)


def test_record_far_behind_what_is_read_is_found_by_its_place() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        for number in range(3_000):
            await asyncio.sleep(0)
            append_waiting(cluster, number)
        await asyncio.sleep(1)
        assert max(state.held for state in process.scheduler.snapshot()) < 3_000
        last = waiting(cluster, b"2999")
        ask = command(cluster, Intent.CANCEL, last)
        await asyncio.sleep(SEEN_SECONDS)
        assert answers(cluster) == {ask: Answer.DONE}
        assert ends(cluster) == {(b"2999", True): 1}
        await asyncio.sleep(200)
        assert ends(cluster) == {
            (b"2999", True): 1, **{(b"%d" % number, False): 1 for number in range(2_999)},
        }  # fmt: skip

    play(scene)


def test_record_that_went_on_is_gone_and_the_command_has_no_effect() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        await process.later(b"a", 5)
        there = waiting(cluster, b"a")
        await asyncio.sleep(6)
        ask = command(cluster, Intent.CANCEL, there)
        await asyncio.sleep(SEEN_SECONDS)
        assert answers(cluster) == {ask: Answer.GONE}
        assert ends(cluster) == {(b"a", False): 1}

    play(scene)


@pytest.mark.parametrize("offset", [0, 1, 7])
def test_command_for_another_record_or_none_moves_nothing_and_leaves_no_mark(offset: int) -> None:
    """A record that is written there later is not passed over."""

    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        await process.later(b"a", 30)
        there = waiting(cluster, b"a")
        ask = command(cluster, Intent.CANCEL, there._replace(offset=offset), record_id="other")
        await asyncio.sleep(SEEN_SECONDS)
        assert answers(cluster) == {ask: Answer.GONE}
        for number in range(8):
            await process.later(b"%d" % number, 30)
        await process.stop()
        steered(cluster)
        await asyncio.sleep(60)
        assert sum(ends(cluster).values()) == 9
        assert set(ends(cluster).values()) == {1}

    play(scene)


def test_next_owner_passes_over_what_a_command_has_moved() -> None:
    async def scene(cluster: Cluster) -> None:
        first = steered(cluster)
        await first.later(b"a", 120)
        await first.later(b"b", 120)
        command(cluster, Intent.RUN, waiting(cluster, b"b"))
        await asyncio.sleep(SEEN_SECONDS)
        await replace_owner(cluster, first)
        assert ends(cluster) == {(b"a", False): 1, (b"b", False): 1}

    play(scene)


@pytest.mark.slow
def test_mark_names_what_the_metadata_of_the_commit_cannot() -> None:
    """A record so far behind the first that waits is moved, and never again."""

    async def scene(cluster: Cluster) -> None:
        first = steered(cluster)
        await first.later(b"first", 120)
        head = waiting(cluster, b"first")
        logs = cluster.topics[head.topic][head.partition]
        # Offsets without a record, as after many transactions, would do the same.
        filler = head._replace(value=b"filler", headers=())
        logs += [filler._replace(offset=number) for number in range(1, OFFSETS_MAX + 10)]
        far = head._replace(offset=len(logs), value=b"far", headers=(("__sharegroup.id", b"far"),
            *[header for header in head.headers if header[0] != "__sharegroup.id"]))  # fmt: skip
        logs.append(far)
        command(cluster, Intent.RUN, far)
        await asyncio.sleep(SEEN_SECONDS)
        assert ends(cluster)[b"far", False] == 1
        partition = TierPartition(head.topic, head.partition)
        assert cluster.committed.get(partition, Committed(0)).offset == 0
        await replace_owner(cluster, first)
        assert ends(cluster)[b"far", False] == 1
        assert ends(cluster)[b"first", False] == 1

    play(scene)


def test_mark_of_a_topic_that_was_made_anew_is_for_no_record_of_the_new_one() -> None:
    async def scene(cluster: Cluster) -> None:
        first = steered(cluster)
        await first.later(b"first", 120)
        await first.later(b"moved", 120)
        there = waiting(cluster, b"moved")
        command(cluster, Intent.RUN, there)
        await asyncio.sleep(SEEN_SECONDS)
        await first.stop()
        for log in cluster.topics[there.topic]:
            log.clear()
        # The coordinator deletes the offsets of a topic with it; nobody deletes the marks.
        cluster.committed.clear()
        second = steered(cluster)
        await second.later(b"a", 120)
        await second.later(b"b", 120)
        assert waiting(cluster, b"b").offset == there.offset
        await asyncio.sleep(200)
        assert ends(cluster) == {(b"moved", False): 1, (b"a", False): 1, (b"b", False): 1}

    play(scene)


def test_marks_are_forgotten_when_the_offset_has_passed_them() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        await process.later(b"a", 300)
        command(cluster, Intent.RUN, waiting(cluster, b"a"))
        await asyncio.sleep(SEEN_SECONDS)
        await process.later(b"b", 300)
        await asyncio.sleep(400)
        keys = {record.key: record.value for record in cluster.lying(CONTROL)}
        assert set(keys.values()) == {None}, "compaction deletes all of them"

    play(scene)


def test_command_that_cannot_be_carried_out_is_repeated() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        await process.later(b"a", 300)
        error = NotEnoughReplicas("not now")
        cluster.refuses = lambda topic, _: error if topic == "g.retry" else None
        ask = command(cluster, Intent.CANCEL, waiting(cluster, b"a"))
        await asyncio.sleep(5)
        assert answers(cluster) == {}
        cluster.refuses = lambda topic, value: None
        await asyncio.sleep(SEEN_SECONDS)
        assert answers(cluster) == {ask: Answer.DONE}
        assert ends(cluster) == {(b"a", True): 1}

    play(scene)


def test_commands_that_fail_do_not_hold_up_the_others() -> None:
    """They fill a whole transaction, and come after the others from then on."""

    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        refused = [b"big%d" % number for number in range(COMMANDS_TOGETHER)]
        for value in (*refused, b"a", b"b"):
            await process.later(value, 300)
        error = NotEnoughReplicas("not now")
        cluster.refuses = lambda topic, value: (
            error if topic == "g.retry" and (value or b"").startswith(b"big") else None
        )
        for value in refused:
            command(cluster, Intent.RUN, waiting(cluster, value))
        asks = [command(cluster, Intent.RUN, waiting(cluster, value)) for value in (b"a", b"b")]
        await asyncio.sleep(10)
        assert answers(cluster) == dict.fromkeys(asks, Answer.DONE)
        cluster.refuses = lambda topic, value: None
        await asyncio.sleep(10)
        assert len(answers(cluster)) == len(refused) + 2
        assert set(ends(cluster).values()) == {1}

    play(scene)


def test_command_that_the_broker_refuses_is_answered_so_and_its_record_waits_on() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        for value in (b"big", b"a"):
            await process.later(value, 60)
        error = MessageTooLarge("larger than the topic allows " + "x" * 1_000)
        cluster.refuses = lambda topic, value: (
            error if topic == "g.retry" and value == b"big" else None
        )
        refused, done = (
            command(cluster, Intent.CANCEL, waiting(cluster, value)) for value in (b"big", b"a")
        )
        await asyncio.sleep(SEEN_SECONDS)
        found = {reply.ask: reply for reply in replies(cluster)}
        assert (found[refused].answer, found[done].answer) == (Answer.REFUSED, Answer.DONE)
        assert found[refused].why.startswith("MessageTooLarge: larger than the topic allows xx")
        cluster.refuses = lambda topic, value: None
        await asyncio.sleep(5)
        assert ends(cluster) == {(b"a", True): 1}, "the command has ended"
        await asyncio.sleep(60)
        assert ends(cluster) == {(b"a", True): 1, (b"big", False): 1}

    play(scene)


LATE_SECONDS = (GRACE_MS + 2 * TIDY_MS) / 1000


def test_control_records_end_a_day_after_they_were_written() -> None:
    """Those about a partition that nobody owns, questions, and answers that are no marks."""

    async def scene(cluster: Cluster) -> None:
        await steered(cluster).later(b"a", 10_000)
        there = waiting(cluster, b"a")
        day_ago = cluster.clock.wall_ms() - KEPT_MS
        for record in (there._replace(topic="g.retry.7h"), there._replace(offset=5), there, None):
            place = record and Place(*record[:3])
            given = Command(
                record_id="f00", intent=Intent.RUN, place=place, ask="old", by="anna",
                asked_ms=day_ago if record is not there else day_ago + GRACE_MS * 10,
            )  # fmt: skip
            key, value = encoded(given)
            cluster.append(CONTROL, value, key, (), 0)
        await asyncio.sleep(GRACE_MS / 2_000)
        assert len(kept(cluster)) == 6, "four commands, of which two are of owned partitions"
        await asyncio.sleep(LATE_SECONDS)
        place = Place(*there[:3])
        # The record itself is a day young, too, and its answer has the time of the answer.
        assert kept(cluster) == {
            key_of(COMMAND, place), key_of(ANSWER, place), key_of(ANSWER, place._replace(offset=5)),
        }  # fmt: skip

    play(scene)


def test_commands_in_partitions_that_nobody_owns_leave_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 100
    monkeypatch.setattr(control_state, "COMMANDS_MAX", limit)
    control = ControlState()
    partition = TierPartition("g.retry.7h", 0)
    given = [
        Command(
            record_id="f00", intent=Intent.RUN, place=Place(*partition, offset), ask="a", by="anna",
            asked_ms=0,
        )
        for offset in range(limit + 1)
    ]  # fmt: skip
    control.read(given, control.reading(), 0)
    due = TierPartition("g.retry.due", 0)
    assert control.ended_of(due, KEPT_MS, 5, all_commands=False) == []
    keys = control.ended_of(due, KEPT_MS, 1_000, all_commands=True)
    assert len(keys) == limit
    control.read([Forgotten(*key) for key in keys], control.reading(), KEPT_MS)
    control.read(given[-1:], control.reading(), KEPT_MS)
    assert control.commands_of(partition, 10) == given[-1:]


def test_answer_to_a_second_command_leaves_the_mark_of_a_record_that_was_moved() -> None:
    """It has the same key, and without the mark the next owner would move the record again."""

    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        for number in range(2_000):
            append_waiting(cluster, number)
        last = waiting(cluster, b"1999")
        command(cluster, Intent.CANCEL, last)
        await asyncio.sleep(SEEN_SECONDS)
        second = command(cluster, Intent.CANCEL, last)
        await asyncio.sleep(SEEN_SECONDS)
        assert answers(cluster)[second] is Answer.MOVED
        compact(cluster)
        await replace_owner(cluster, process)
        assert ends(cluster)[b"1999", True] == 1
        assert ends(cluster)[b"1999", False] == 0

    play(scene)


def replies(cluster: Cluster) -> list[Reply]:
    found = [parsed(record.key, record.value) for record in cluster.lying(CONTROL)]
    return [reply for reply in found if isinstance(reply, Reply)]


def kept(cluster: Cluster) -> set[bytes | None]:
    """The keys that are left when the control topic is compacted."""
    last = {record.key: record.value for record in cluster.lying(CONTROL)}
    return {key for key, value in last.items() if value is not None}


def compact(cluster: Cluster) -> None:
    """Leave only the last record of each key in the control topic."""
    (log,) = cluster.topics[CONTROL]
    last = {record.key: record for record in log}
    log[:] = [record for record in log if last[record.key] is record]


def test_commands_for_large_records_are_carried_out_in_several_transactions() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        values = [b"%d" % number + bytes(COMMANDED_BYTES // 3) for number in range(7)]
        for value in values:
            await process.later(value, 300)
        before = len(cluster.commits)
        for value in values:
            command(cluster, Intent.RUN, waiting(cluster, value))
        await asyncio.sleep(SEEN_SECONDS * 3)
        assert list(answers(cluster).values()) == [Answer.DONE] * 7
        assert len(cluster.commits) - before >= 3
        assert set(ends(cluster).values()) == {1}

    play(scene)


def test_record_that_cannot_be_written_does_not_hold_up_the_others_of_its_move() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        error = MessageTooLarge("too large")
        cluster.refuses = lambda topic, value: (
            error if topic == "g.retry" and value == b"big" else None
        )
        for value in (b"a", b"big", b"b"):
            await process.later(value, 5)
        await asyncio.sleep(7)
        assert ends(cluster) == {(b"a", False): 1, (b"b", False): 1}
        cluster.refuses = lambda topic, value: None
        await asyncio.sleep(10)
        assert ends(cluster)[b"big", False] == 1

    play(scene)


def test_process_that_holds_a_record_says_so() -> None:
    async def scene(cluster: Cluster) -> None:
        steered(cluster)
        steered(cluster, holder=lambda record_id: "member-2" if record_id == "held" else None)
        for record_id in ("held", "unknown"):
            question = Command(
                record_id=record_id, intent=Intent.RUN, place=None, ask=record_id, by="anna",
                asked_ms=START_MS,
            )  # fmt: skip
            key, value = encoded(question)
            cluster.append(CONTROL, value, key, (), 0)
        await asyncio.sleep(2)
        replies = [parsed(record.key, record.value) for record in cluster.lying(CONTROL)]
        (reply,) = [reply for reply in replies if isinstance(reply, Reply)]
        assert (reply.record_id, reply.answer, reply.member) == ("held", Answer.HELD, "member-2")

    play(scene)


def test_frozen_owner_moves_nothing_when_it_wakes_up() -> None:
    """Its move was under way when the group went on without it."""

    async def scene(cluster: Cluster) -> None:
        first = steered(cluster)
        await first.later(b"a", 30)
        there = waiting(cluster, b"a")
        await asyncio.sleep(29.9)
        first.member.is_running.clear()
        await asyncio.sleep(SESSION_SECONDS)
        first.member.lose()
        cluster.members.remove(first.member)
        steered(cluster)
        await cluster.share_out()
        command(cluster, Intent.CANCEL, there)
        await asyncio.sleep(5)
        first.member.is_running.set()
        await asyncio.sleep(60)
        assert sum(ends(cluster).values()) == 1

    play(scene)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_commands_race_the_scheduler_and_takeovers(seed: int) -> None:
    """Records that are due all the time, commands for any of them, kills and frozen owners.

    In the end each record came to the own topic once, to be run or to become a letter.
    """
    chance = random.Random(seed)
    tiers = Tiers.of((1, 3))
    records = 150

    async def scene(cluster: Cluster) -> None:
        processes = [steered(cluster, tiers=tiers) for _ in range(3)]
        asks: dict[str, bytes] = {}
        latest: dict[Place, str] = {}
        for number in range(records):
            value = b"%d" % number
            await processes[-1].later(value, chance.uniform(0.1, 8))
            if chance.random() < 0.7:
                record = waiting(cluster, value)
                for _ in range(1 + (chance.random() < 0.1)):
                    ask = command(cluster, chance.choice(list(Intent)), record)
                    asks[ask], latest[Place(*record[:3])] = value, ask
            await asyncio.sleep(chance.uniform(0, 0.1))
            if number % 30 == 15:
                victim = processes.pop(0)
                if chance.random() < 0.5:
                    await victim.kill()
                else:
                    victim.member.is_running.clear()
                    await asyncio.sleep(SESSION_SECONDS)
                    victim.member.lose()
                    cluster.members.remove(victim.member)
                    await cluster.share_out()
                    asyncio.get_running_loop().call_later(
                        chance.uniform(0, 5), victim.member.is_running.set
                    )
                processes.append(steered(cluster, tiers=tiers))
        await asyncio.sleep(60)
        ended = ends(cluster)
        assert Counter(value for value, _ in ended.elements()) == {
            b"%d" % number: 1 for number in range(records)
        }
        assert set(latest.values()) <= answers(cluster).keys(), (
            "a later one replaces one that waits"
        )
        done = [asks[ask] for ask, answer in answers(cluster).items() if answer is Answer.DONE]
        assert len(done) == len(set(done)), "a record has one end"
        assert len(done) > 10

    play(scene, partitions=2)


def test_broker_that_is_away_delays_commands_and_loses_none() -> None:
    async def scene(cluster: Cluster) -> None:
        process = steered(cluster)
        await process.later(b"a", 300)
        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(cluster.down_for(30)))
        await asyncio.sleep(0.01)
        ask = command(cluster, Intent.RUN, waiting(cluster, b"a"))
        await asyncio.sleep(29)
        assert answers(cluster) == {}
        await asyncio.sleep(3)
        assert answers(cluster) == {ask: Answer.DONE}
        assert isinstance(NetworkException("away"), Exception)

    play(scene)


def test_record_that_is_read_while_its_command_is_carried_out_is_not_moved_again() -> None:
    """It was not on the shelf when the transaction began."""
    partition = TierPartition("g.retry.2m", 0)
    headers = (("__sharegroup.id", b"f00"),)
    record = TierRecord(0, START_MS, None, b"a", headers)
    shelf = Shelf(Committed(0), records_max=10, bytes_max=10_000)
    put = waiting_of(record, Moment(START_MS, 0))

    class ReadMeanwhile:
        async def move(
            self, _: TierPartition, records: Sequence[MovedRecord], __: Committed
        ) -> Sequence[WrittenRecord]:
            shelf.put(put, 0)
            return ()

        async def record_at(self, _: TierPartition, __: int) -> TierRecord:
            return record

    async def scene() -> None:
        control = ControlState()
        moves: Any = ReadMeanwhile()
        steering = Steering("g", partition, shelf, moves=moves, control=control, clock=LoopClock())
        given = Command(
            record_id="f00", intent=Intent.RUN, place=Place(*partition, 0), ask="a", by="anna",
            asked_ms=START_MS,
        )  # fmt: skip
        control.read([given], control.reading(), START_MS)
        await steering.obey()
        assert shelf.take(1_000_000, 10) == []
        assert shelf.to_commit() == Committed(1)

    virtual_time.run(scene())
