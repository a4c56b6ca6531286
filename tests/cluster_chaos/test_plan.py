"""The plan of faults: from its seed alone, in order, of every kind."""

from __future__ import annotations

import random
from collections import Counter

from tests.cluster_chaos.moves import choose_moves
from tests.cluster_chaos.plan import AT_ONCE, OF_SIXTY, Kind, plan
from tests.support.cluster_views import PartitionView, View


def test_plan_is_determined_by_its_seed() -> None:
    first = plan(7, seconds=600, count=60)
    assert first == plan(7, seconds=600, count=60)
    assert first != plan(8, seconds=600, count=60)


def test_sixty_faults_have_every_kind_in_its_share() -> None:
    assert sum(OF_SIXTY.values()) == 60
    assert Counter(fault.kind for fault in plan(1, seconds=600, count=60)) == dict(OF_SIXTY)


def test_faults_are_consecutive_within_the_duration() -> None:
    for seed in range(20):
        faults = plan(seed, seconds=600, count=60)
        assert [fault.index for fault in faults] == list(range(60))
        ends = [fault.at + fault.seconds for fault in faults]
        assert all(end <= fault.at for end, fault in zip(ends, faults[1:], strict=False))
        assert faults[0].at >= 0
        assert ends[-1] <= 600


def test_a_fault_has_the_nodes_that_its_kind_needs() -> None:
    counts = {
        (fault.kind, len(set(fault.nodes)))
        for seed in range(5)
        for fault in plan(seed, seconds=600, count=60)
    }
    assert (Kind.KILL, 1) in counts
    assert (Kind.KILL_TWO, 2) in counts
    assert (Kind.ISOLATE_PAIR, 2) in counts
    assert (Kind.ISOLATE_ALL, 3) in counts
    assert (Kind.MOVE_LEADERS, 0) in counts
    assert len(counts) == len(Kind)


def test_faults_without_recovery_have_no_duration_and_lost_majorities_are_short() -> None:
    for fault in plan(3, seconds=600, count=60):
        if fault.kind in AT_ONCE:
            assert fault.seconds == 0
        else:
            assert 1 <= fault.seconds <= 8
        if fault.kind in {Kind.KILL_TWO, Kind.FREEZE_TWO, Kind.ISOLATE_ALL}:
            assert fault.seconds <= 5


def test_leaders_move_to_another_replica_in_sync() -> None:
    partitions = {
        0: PartitionView(leader=1, leader_epoch=0, replicas=(1, 2, 3), in_sync=(1, 3)),
        1: PartitionView(leader=2, leader_epoch=0, replicas=(2, 3, 1), in_sync=(2,)),
    }
    view = View(brokers=(1, 2, 3), topics={"orders": partitions}, topic_ids={}, coordinator=-1)
    found = {
        move for seed in range(20) for move in choose_moves(view, ["orders"], random.Random(seed))
    }
    assert found == {("orders", 0, (3, 1, 2))}
