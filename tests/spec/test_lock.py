"""Locks end by themselves (docs/spec.md, «lock»); these tests wait for real locks of a second."""

from __future__ import annotations

import time

import pytest

from tests.spec.member import Member
from tests.spec.messages import ACCEPT, RELEASE, RENEW, Topic
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for

SECOND = {"share_record_lock_duration_ms": "1000"}
TWO_SECONDS = {"share_record_lock_duration_ms": "2000"}
INVALID_STATE = 121


def reader(scene: Scene, *batches: int, **configs: str) -> tuple[Topic, Member]:
    """A topic with these log batches, and a member whose locks last a second."""
    topic = scene.topic()
    scene.produce(topic, *batches)
    return topic, scene.member(scene.group(**{**SECOND, **configs}), topic)


def test_lock_1_that_ends_makes_the_record_available(scene: Scene) -> None:
    """And answers a fetch that waits for it; never before its time."""
    topic, member = reader(scene)
    other = scene.member(member.group, topic).open()
    scene.produce(topic, 2)
    began = time.monotonic()
    assert member.take(2) == [(0, 1, 1)]
    request = other.begin_fetch(wait_ms=10_000)
    assert other.finish_fetch(request).acquired == [(0, 1, 2)]
    assert 1.0 <= time.monotonic() - began < 9.0


def test_lock_2_that_ended_settles_nothing(scene: Scene) -> None:
    topic, member = reader(scene, 1)
    member.take()
    other = scene.member(member.group, topic)
    assert other.take() == [(0, 0, 2)]
    assert member.acknowledge([(0, 0, ACCEPT)]).outcome == INVALID_STATE
    assert other.acknowledge([(0, 0, ACCEPT)]).outcome == 0


@pytest.mark.slow
def test_lock_3_renewed_holds_for_the_whole_duration_from_then_on(scene: Scene) -> None:
    topic, member = reader(scene, 1, **TWO_SECONDS)
    other = scene.member(member.group, topic).open()
    member.take()
    request = other.begin_fetch(wait_ms=10_000)
    assert other.connection.is_silent(1.0)
    renewed = time.monotonic()
    assert member.acknowledge([(0, 0, RENEW)], renew=True).outcome == 0
    assert other.finish_fetch(request).acquired == [(0, 0, 2)]
    assert time.monotonic() - renewed >= 2.0


def test_lock_4_of_the_last_delivery_archives_when_it_ends(scene: Scene) -> None:
    topic, member = reader(scene, 1, 1, share_delivery_count_limit="2")
    assert member.take(2, max_records=1) == [(0, 0, 1), (1, 1, 1)]
    assert member.acknowledge([(0, 1, RELEASE)]).outcome == 0
    assert sum(last - first + 1 for first, last, _ in member.take(2)) == 2
    wait_for(lambda: scene.start_and_lag(member.group, topic)[1] == 0, "both to be archived")
    assert member.fetch(wait_ms=50).acquired == []


def test_lock_5_lasts_for_the_duration_set_at_its_acquisition(scene: Scene) -> None:
    topic, member = reader(scene, 1)
    member.take()
    scene.alter_group(member.group, share_record_lock_duration_ms="60000")
    assert scene.member(member.group, topic).take() == [(0, 0, 2)]


def test_lock_6_that_ended_cannot_be_renewed(scene: Scene) -> None:
    topic, member = reader(scene, 1)
    member.take()
    assert scene.member(member.group, topic).take() == [(0, 0, 2)]
    assert member.acknowledge([(0, 0, RENEW)], renew=True).outcome == INVALID_STATE


def test_lock_7_renewal_of_a_refused_request(scene: Scene) -> None:
    """Ours refuses all of it, so the lock ends when it would have; in Kafka it holds on."""
    topic, member = reader(scene, **TWO_SECONDS)
    other = scene.member(member.group, topic).open()
    scene.produce(topic, 2)
    assert member.take(2) == [(0, 1, 1)]
    assert member.acknowledge([(1, 1, ACCEPT)]).outcome == 0
    request = other.begin_fetch(wait_ms=10_000)
    assert other.connection.is_silent(1.0)
    renewed = time.monotonic()
    refused = member.acknowledge([(0, 0, RENEW), (1, 1, ACCEPT)], renew=True)
    assert refused.outcome == INVALID_STATE
    assert other.finish_fetch(request).acquired == [(0, 0, 2)]
    holds_on = time.monotonic() - renewed >= 2.0
    assert holds_on is {"ours": False, "kafka": True}[scene.kind]
