"""P14: does the cost of a record grow with what is there besides?

What counts is the broker's own CPU time, in microseconds for each record.  The requests are the
same in all steps of a row, made by hand so that no client's cost is in them: the same number of
fetches of the same number of records, each fetch accepting what the one before it brought.

    groups      the fetches go round over 1 to 1,000 groups, which read one topic
    partitions  one group; the fetches go round over the batches of 1 to 2,000 partitions
    in flight   one group holds 10 to 1,000,000 records and accepts its oldest ten in each fetch
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from kio.schema.metadata.v13 import request as metadata

from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FSYNC, OS, Broker, Peer
from tests.bench.peers.lines import Against, Line, Measured, Scale, measured
from tests.bench.peers.workloads.log import Log, new_group
from tests.spec.connection import Connection
from tests.spec.member import Member
from tests.spec.messages import ACCEPT, Partition, Topic
from tests.support.confluent_calls import set_group
from tests.support.processes import cpu_seconds

GROUPS = (1, 10, 100, 1_000)
PARTITIONS = (1, 100, 2_000)
IN_FLIGHT = (10, 1_000, 100_000, 1_000_000)
REACH = 1 / 1.3
BATCH = 500
SMALL_BATCH = 10
"""Records that one fetch accepts and takes while others are in flight."""
SMALL_STEPS = 4_000
LOCK_MS = 60_000
WAIT_MS = 2_000


def _lines(row: str, steps: tuple[int, ...]) -> tuple[Line, ...]:
    whats = [f"{row.format(f'{step:,}')}" for step in steps]
    return tuple(
        Line(
            what=what,
            unit="us of broker CPU a record",
            higher_is_better=False,
            against=tuple(
                Against(ours=peer, rival=peer, line=whats[0], reach=REACH) for peer in (FSYNC, OS)
            )
            if what != whats[0]
            else (),
        )
        for what in whats
    )


class Growth:
    """Each step is compared with the first of its row."""

    name = "P14"
    title = "growth"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS)
    warms_up: tuple[str, ...] = ()
    lines = (
        *_lines("cost of a record, {} groups on one topic", GROUPS),
        *_lines("cost of a record, {} partitions", PARTITIONS),
        *_lines("cost of a record, {} records in flight", IN_FLIGHT),
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        """Every log has a batch more for each group or partition: the one that opens it."""
        logs = [self._for_groups(scale), self._in_flight(scale)]
        logs += [self._for_partitions(scale, partitions) for partitions in PARTITIONS]
        return "; ".join(log.on(peer) for log in logs)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        found: list[Measured | None] = []
        for groups in GROUPS:
            with peer.awake() as broker:
                cost = _over_groups(broker, self._for_groups(scale), groups, self._fetches(scale))
            found.append(measured(cost.us, {"broker_cpu_s": cost.cpu_s}, peer))
        for partitions in PARTITIONS:
            log = self._for_partitions(scale, partitions)
            with peer.awake() as broker:
                cost = _over_partitions(broker, log)
            found.append(measured(cost.us, {"broker_cpu_s": cost.cpu_s}, peer))
        for held in IN_FLIGHT:
            if held > scale.held_max:
                found.append(None)
                continue
            with peer.awake() as broker:
                cost = _in_flight(broker, self._in_flight(scale), held)
            found.append(measured(cost.us, {"broker_cpu_s": cost.cpu_s}, peer))
        return tuple(found)

    def _fetches(self, scale: Scale) -> int:
        """Of each step, over all groups: at least two for each of the most groups."""
        return max(2 * GROUPS[-1], scale.records // BATCH)

    def _for_groups(self, scale: Scale) -> Log:
        return Log(topic="grown-groups", records=(self._fetches(scale) + 1) * BATCH)

    def _for_partitions(self, scale: Scale, partitions: int) -> Log:
        each = max(2, self._fetches(scale) // partitions)
        return Log(
            topic=f"grown-partitions-{partitions}",
            records=partitions * each * BATCH,
            partitions=partitions,
        )

    def _in_flight(self, scale: Scale) -> Log:
        return Log(
            topic="grown-in-flight",
            records=scale.held_max + SMALL_BATCH * (SMALL_STEPS + 1),
            batch_records=SMALL_BATCH,
        )


Accepts = dict[Partition, list[tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    us: float
    """For each record."""


class Meter:
    """The broker's CPU time from its creation on."""

    def __init__(self, broker: Broker) -> None:
        self._pid = broker.pid
        self._begin = cpu_seconds(broker.pid)

    def end(self, records: int) -> Cost:
        cpu_s = cpu_seconds(self._pid) - self._begin
        return Cost(cpu_s, cpu_s / records * 1e6)


def _over_groups(broker: Broker, log: Log, groups: int, fetches: int) -> Cost:
    """So many fetches in all; each group is in its session with a batch in its hands before."""
    with Connection(broker.port) as connection:
        topic = _topic(connection, log)
        members = [
            Member(connection, new_group(broker.bootstrap_servers)).join(topic)
            for _ in range(groups)
        ]
        held = [_take(member, BATCH, ()) for member in members]
        meter, records = Meter(broker), 0
        for number in range(fetches):
            at = number % groups
            held[at] = _take(members[at], BATCH, _accepts(held[at]))
            records += BATCH
        cost = meter.end(records)
        _leave(members)
    return cost


def _over_partitions(broker: Broker, log: Log) -> Cost:
    """One member reads the whole topic; which partition comes next is the broker's choice."""
    with Connection(broker.port) as connection:
        topic = _topic(connection, log)
        member = Member(connection, new_group(broker.bootstrap_servers)).join(topic)
        member.until_assigned(log.partitions)
        # Every share partition is loaded, or the first steps would pay for that.
        left, acks = log.records, Accepts()
        opened: set[int] = set()
        while len(opened) < log.partitions:
            came, acks = _take_any(member, acks)
            opened |= {partition for _, partition in acks}
            left -= came
        meter, records = Meter(broker), left
        if not left:
            raise BenchError(f"all {log.records} records came while the partitions were opened")
        while left:
            came, acks = _take_any(member, acks)
            left -= came
        cost = meter.end(records)
        _leave([member])
    return cost


def _in_flight(broker: Broker, log: Log, held: int) -> Cost:
    """Hold so many, then give back the oldest ten and take ten more, again and again."""
    with Connection(broker.port) as connection:
        topic = _topic(connection, log)
        group = new_group(broker.bootstrap_servers)
        set_group(
            broker.bootstrap_servers,
            group,
            partition_max_record_locks=str(max(2_000, held)),
            record_lock_duration_ms=str(LOCK_MS),
        )
        member = Member(connection, group).join(topic)
        taken: deque[tuple[int, int]] = deque()
        began, next_offset = time.monotonic(), 0
        while next_offset < held:
            wanted = min(2_000, held - next_offset)
            first, end = _take(member, wanted, ())
            taken.extend((at, at + SMALL_BATCH) for at in range(first, end, SMALL_BATCH))
            next_offset = end
        meter = Meter(broker)
        for _ in range(SMALL_STEPS):
            taken.append(_take(member, SMALL_BATCH, _accepts(taken.popleft())))
        cost = meter.end(SMALL_STEPS * SMALL_BATCH)
        if (seconds := time.monotonic() - began) * 1000 > LOCK_MS:
            raise BenchError(f"locks of {LOCK_MS} ms did not last for {seconds:.0f} s of work")
        _leave([member])
    return cost


def _take(member: Member, records: int, acks: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
    """Accept these, and take so many of the next records: the range that came."""
    answer = member.fetch(acks, wait_ms=WAIT_MS, max_records=records, batch_size=records)
    ranges = sorted((first, last + 1) for first, last, _ in answer.acquired)
    came = sum(end - first for first, end in ranges)
    if answer.error or came != records or ranges[-1][1] - ranges[0][0] != records:
        raise BenchError(f"{member.group}: expected {records} records in a row, got {answer.raw}")
    return ranges[0][0], ranges[-1][1]


def _take_any(member: Member, acks: Accepts) -> tuple[int, Accepts]:
    """Accept these, and take what comes: how many, and their acceptance by partition."""
    answer = member.fetch(acks, wait_ms=WAIT_MS)
    failed = [
        partition for partition in answer.partitions.values() if partition.acknowledge_error_code
    ]
    if answer.error or failed or any(answer.errors.values()):
        raise BenchError(f"{member.group}: a fetch failed: {answer.raw}")
    if not answer.count:
        raise BenchError(f"{member.group}: no record within {WAIT_MS} ms")
    topic_id = member.topics[0].id
    return answer.count, {
        (topic_id, number): [(first, last, ACCEPT) for first, last, _ in ranges]
        for number, ranges in answer.by_partition.items()
    }


def _accepts(taken: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
    first, end = taken
    return ((first, end - 1, ACCEPT),)


def _leave(members: list[Member]) -> None:
    for member in members:
        member.close()
        member.leave()


def _topic(connection: Connection, log: Log) -> Topic:
    """The topic's id."""
    request = metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(topic_id=None, name=log.topic),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    (about,) = connection.ask(request).topics
    return Topic(log.topic, about.topic_id, log.partitions)
