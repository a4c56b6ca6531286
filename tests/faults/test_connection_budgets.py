"""Attacks on the memory and the time of connections, with small budgets and real sockets.

The broker's own accounting says what it holds; `tests.attacks` measures processes.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.metadata.v12 import request as metadata
from kio.schema.share_fetch.v1 import request as share_fetch

from sharegroup.broker.load.answer_budget import AnswerAccount
from sharegroup.ids import TopicName
from sharegroup.testing import TestBroker, run_broker
from tests.attacks.batches import honest_batch
from tests.attacks.target import (
    fetch_request,
    frame,
    join_request,
    produce_request,
    produced,
    send_what_goes,
)
from tests.faults.raw_connection import RawConnection

MIB = 1024 * 1024
ANSWERS_MAX, CONNECTION_MAX, REQUESTS_MAX, FRAME_MAX = 16 * MIB, 8 * MIB, 8 * MIB, 4 * MIB
BATCH_BYTES = 500_000
BATCHES = 24
ONE_BATCH = BATCH_BYTES + 1_000
HONEST_SECONDS_MAX = 10.0  # One at rest; other tests run beside.
HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
SETTINGS = {
    "sharegroup.durability": "os",
    "sharegroup.answers.max.bytes": str(ANSWERS_MAX),
    "sharegroup.connection.answer.max.bytes": str(CONNECTION_MAX),
    "queued.max.request.bytes": str(REQUESTS_MAX),
    "socket.request.max.bytes": str(FRAME_MAX),
}


class Scene:
    """A broker with the topic ``full``, and what its budgets held at most."""

    def __init__(self, broker: TestBroker) -> None:
        self.broker = broker
        self.port = broker.running.parts.node.port
        self.budgets = broker.running.server.budgets
        self.answers_most = self.requests_most = 0

    def connect(self, *, receive_bytes: int | None = None) -> RawConnection:
        connection = RawConnection(self.port, seconds=HONEST_SECONDS_MAX)
        if receive_bytes is not None:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        return connection

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + HONEST_SECONDS_MAX
        while not condition():
            self.look()
            assert time.monotonic() < limit, f"not within {HONEST_SECONDS_MAX} s: {what}"
            time.sleep(0.001)

    def look(self) -> None:
        self.answers_most = max(self.answers_most, self.budgets.answers.used_bytes)
        self.requests_most = max(self.requests_most, self.budgets.requests.used_bytes)


@contextmanager
def serving(**settings: str) -> Iterator[Scene]:
    with run_broker({**SETTINGS, **settings}) as broker:
        scene = Scene(broker)
        with scene.connect() as connection:
            for name in ("full", "empty"):
                wanted = metadata.MetadataRequestTopic(topic_id=None, name=name)
                request = metadata.MetadataRequest(
                    topics=(wanted,),
                    allow_auto_topic_creation=True,
                    include_topic_authorized_operations=False,
                )
                connection.ask(request)
            data = honest_batch(1, bytes(BATCH_BYTES))
            for _ in range(BATCHES):
                assert produced(connection.ask(produce_request("full", data))) == 0
            connection.ask(fetch_request("empty", bytes_max=1))  # A first fetch waits for imports.
        yield scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    with serving() as scene:
        yield scene


def records_of(response: Any) -> bytes:
    """The records of a fetch's only partition."""
    return bytes(response.responses[0].partitions[0].records or b"")


def test_unread_fetch_responses_stay_within_the_budget(scene: Scene) -> None:
    """Three peers send 100 fetches of 12 MB each and read nothing; a fourth gets its records."""
    with ExitStack() as stack:
        for _ in range(3):
            greedy = stack.enter_context(scene.connect(receive_bytes=4096))
            send_what_goes(greedy, frame(fetch_request("full")) * 100)
            scene.look()
        scene.wait_until(
            lambda: scene.budgets.answers.used_bytes > ANSWERS_MAX // 2, "answers are queued"
        )
        with scene.connect() as honest:
            assert honest.ask(HELLO).error_code == 0
            request = fetch_request("full", wait_ms=5_000, min_bytes=1)
            assert len(records_of(honest.ask(request))) >= BATCH_BYTES
        scene.look()
    assert scene.answers_most <= ANSWERS_MAX + ONE_BATCH
    scene.wait_until(lambda: scene.budgets.answers.used_bytes == 0, "everything is freed")


def test_fetches_after_a_long_poll_stay_within_the_budget(scene: Scene) -> None:
    with scene.connect() as greedy:
        poll = frame(fetch_request("empty", wait_ms=60_000, min_bytes=1))
        greedy.send(poll + frame(fetch_request("full")) * 20)
        scene.wait_until(lambda: scene.budgets.answers.used_bytes > CONNECTION_MAX // 2, "queued")
        with scene.connect() as honest:
            for _ in range(20):
                assert honest.ask(HELLO).error_code == 0
                scene.look()
            assert scene.answers_most <= CONNECTION_MAX + ONE_BATCH
            batch = honest_batch(1, b"x")
            assert produced(honest.ask(produce_request("empty", batch))) == 0
        for _ in range(21):  # All are answered once the poll is.
            assert greedy.answer() is not None
            scene.look()
    assert scene.answers_most <= CONNECTION_MAX + ONE_BATCH


def test_a_share_fetch_without_room_locks_nothing(scene: Scene) -> None:
    """Records arrive while others hold all room: the fetch waits, and then gets them."""
    group, member = "g", "AAAAAAAAAAAAAAAAAAAAAA"
    parts = scene.broker.running.parts
    topic = parts.topics.catalog.topic(TopicName("full"))
    with scene.connect() as connection:
        connection.ask(join_request(group, member, ["full"]))
        connection.ask(_share_fetch(group, member, topic.topic_id, epoch=0, wait_ms=1))
        poll = _share_fetch(group, member, topic.topic_id, epoch=1, wait_ms=60_000)
        connection.send(frame(poll))
        scene.wait_until(lambda: len(parts.waiting) == 1, "the fetch waits")
        held = _HeldAnswers(scene, ANSWERS_MAX)
        waits = scene.budgets.answers.waited_count
        held.take()
        batch = bytearray(honest_batch(1, b"x"))
        held.loop.call_soon_threadsafe(
            lambda: parts.topics.named(topic.name, 0)[1].append(batch, now_ms=1)
        )
        scene.wait_until(lambda: scene.budgets.answers.waited_count > waits, "it waits for room")
        assert _acquired(scene) == 0
        held.give_back()
        assert connection.answer() is not None
        assert _acquired(scene) == 1


def test_halves_of_large_frames_stay_within_the_budget(scene: Scene) -> None:
    """20 peers send nearly all of a frame of 4 MiB; others are served, with large requests too."""
    with ExitStack() as stack:
        for _ in range(20):
            half = stack.enter_context(scene.connect())
            half.send(struct.pack(">ihhih", FRAME_MAX, 0, 9, 1, -1) + bytes(64 * 1024))
            half.socket.setblocking(False)
            scene.look()
            _send_some(half.socket, bytes(FRAME_MAX - MIB))
            scene.look()
        with scene.connect() as honest:
            assert honest.ask(HELLO).error_code == 0
            large = honest_batch(1, bytes(900_000))
            assert produced(honest.ask(produce_request("empty", large))) == 0
        scene.wait_until(lambda: scene.budgets.requests.evicted_count > 0, "halves are closed")
    assert scene.requests_most <= REQUESTS_MAX
    scene.wait_until(lambda: scene.budgets.requests.used_bytes == 0, "everything is freed")


def test_answers_that_are_ready_together_leave_nothing_counted() -> None:
    """50 batches wait for one sync; a large answer then has everything counted again."""
    with serving(**{"sharegroup.durability": "fsync"}) as scene, scene.connect() as peer:
        peer.send(frame(produce_request("empty", honest_batch(1, b"x"))) * 50)
        assert all(peer.answer() for _ in range(50))
        requests, answers = scene.budgets.requests, scene.budgets.answers
        scene.wait_until(lambda: requests.used_bytes == 0, "no request is counted")
        assert len(records_of(peer.ask(fetch_request("full")))) >= BATCH_BYTES
        # The transport may have sent the end of it later; the next answer has it counted again.
        assert peer.ask(HELLO).error_code == 0
        scene.wait_until(lambda: answers.used_bytes == 0, "no answer is counted")


def test_refused_peer_that_does_not_read_is_closed() -> None:
    """Its earlier responses must not stay in memory for an unlimited time."""
    settings = {"sharegroup.frame.progress.timeout.ms": "500"}
    with serving(**settings) as scene, scene.connect(receive_bytes=4096) as peer:
        budget, requests = scene.budgets.answers, scene.broker.running.parts.requests
        peer.send(frame(fetch_request("full", bytes_max=3 * MIB)) * 2 + struct.pack(">i", -1))
        scene.wait_until(lambda: requests.bad_count == 1, "it is refused")
        assert budget.used_bytes > 0
        scene.wait_until(lambda: scene.broker.running.server.connection_count == 0, "it is dropped")
        assert budget.used_bytes == 0


def test_an_honest_peer_is_answered_before_a_flood_is_served(scene: Scene) -> None:
    """50 peers send 2,000 requests each; the honest peer is last and does not wait for all."""
    flood = frame(HELLO) * 2_000
    served = scene.broker.running.parts.requests.of(18)
    with ExitStack() as stack:
        honest = stack.enter_context(scene.connect())
        honest.ask(HELLO)
        peers = [stack.enter_context(scene.connect()) for _ in range(50)]
        for peer in peers:
            peer.socket.setblocking(False)
            _send_some(peer.socket, flood)
        before = served.seconds.count
        assert honest.ask(HELLO).error_code == 0
        assert served.seconds.count - before < 50 * 2_000 // 4


class _HeldAnswers:
    """A peer that holds so many bytes of answers, without a socket."""

    def __init__(self, scene: Scene, size: int) -> None:
        self.size = size
        self.unsent = 0
        self.loop = scene.broker.running.background.get_loop()
        self._scene = scene
        self._account: AnswerAccount | None = None

    def unsent_bytes(self) -> int:
        return self.unsent

    def go_on(self) -> None:
        """It waits for nothing."""

    def close(self, reason: str) -> None:
        """It stays, so that the test decides when there is room."""

    def take(self) -> None:
        self._account = AnswerAccount(self._scene.budgets.answers, self)
        self._set(self.size)

    def give_back(self) -> None:
        self._set(0)

    def _set(self, unsent: int) -> None:
        account = self._account
        assert account is not None
        self.unsent = unsent
        self.loop.call_soon_threadsafe(account.refresh)
        self._scene.wait_until(lambda: account.held_bytes == unsent, "the bytes are counted")


def _acquired(scene: Scene) -> int:
    return sum(
        live.state.snapshot().acquired_count for live in scene.broker.running.parts.share_partitions
    )


def _send_some(to: socket.socket, data: bytes) -> None:
    """Send what the kernel and the broker take at once."""
    try:
        sent = 1
        while data and sent:
            sent = to.send(data)
            data = data[sent:]
    except BlockingIOError:
        return
    except ConnectionError:
        return


def _share_fetch(group: str, member: str, topic_id: UUID, *, epoch: int, wait_ms: int) -> Any:
    partitions = (share_fetch.FetchPartition(partition_index=0, acknowledgement_batches=()),)
    return share_fetch.ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        max_bytes=50 * MIB,
        max_records=1,
        batch_size=1,
        topics=(share_fetch.FetchTopic(topic_id=topic_id, partitions=partitions),),
        forgotten_topics_data=(),
    )
