"""Attacks by answers that are large, slow to make, or never read."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.metadata.v12.request import MetadataRequest

from sharegroup.wire.codec.encoder import encode_request
from tests.attacks.batches import honest_batch
from tests.attacks.target import (
    BIG_PARTITIONS,
    Target,
    answers,
    fetch_request,
    frame,
    join_request,
    list_offsets_request,
    pause_until,
    produce_request,
    send_what_goes,
)

PIPELINED_FETCHES = 100
PIPELINED_LARGE = 20
PARKED = 99
PARKED_MS = 10_000
HOLD_SECONDS = 4.0
LATEST = -1


def full(target: Target) -> None:
    target.make_full_topic()


def big(target: Target) -> None:
    target.make_big_topic()


def fetches_unread(target: Target) -> Iterator[None]:
    """100 fetches of 55 MB in one go; the answers are never read."""
    with target.connect() as connection:
        send_what_goes(connection, frame(fetch_request("full")) * PIPELINED_FETCHES)
        pause_until(time.monotonic() + HOLD_SECONDS)
        yield


def make_full_and_empty(target: Target) -> None:
    target.make_full_topic()
    target.make_topic("empty")


def fetches_behind_a_long_poll(target: Target) -> Iterator[None]:
    """A fetch that waits for 20 s, and 20 fetches of 55 MB behind it on the same connection."""
    with target.connect() as connection:
        poll = frame(fetch_request("empty", wait_ms=20_000, min_bytes=1))
        send_what_goes(connection, poll + frame(fetch_request("full")) * PIPELINED_LARGE)
        pause_until(time.monotonic() + HOLD_SECONDS)
        yield


def metadata_of_everything(target: Target) -> Iterator[None]:
    """20 pipelined requests for the metadata of all topics."""
    request = MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    yield from _pipelined(target, frame(request))


def offsets_of_everything(target: Target) -> Iterator[None]:
    """20 pipelined requests for the end offsets of 19,000 partitions."""
    yield from _pipelined(target, frame(list_offsets_request("big", range(BIG_PARTITIONS), LATEST)))


def log_dirs_of_everything(target: Target) -> Iterator[None]:
    """20 pipelined requests for the sizes of all partitions."""
    yield from _pipelined(target, frame(DescribeLogDirsRequest(topics=None)))


def _pipelined(target: Target, request: bytes) -> Iterator[None]:
    with target.connect() as connection:
        connection.send(request * PIPELINED_LARGE)
        came = answers(connection, PIPELINED_LARGE)
        target.note(answers=came)
        if came < PIPELINED_LARGE:
            target.found.append(f"{came} answers, expected {PIPELINED_LARGE}")
        yield


def join_of_a_large_topic(target: Target) -> Iterator[None]:
    """A share group subscribes to a topic of 19,000 partitions and reads its assignment."""
    group = f"large-{time.monotonic_ns()}"
    with target.connect() as connection:
        answer = connection.ask(join_request(group, "m1", ["big"]))
        epoch = answer.member_epoch
        for _ in range(5):
            request = join_request(group, "m1", ["big"], epoch=epoch)
            answer = connection.ask(request)
            if int(answer.error_code) == 0:
                epoch = answer.member_epoch
        connection.ask(join_request(group, "m1", [], epoch=-1))
        yield


def parked_fetches(target: Target) -> Iterator[None]:
    """99 fetches wait for 2³¹-1 bytes of a topic with 56 MB; then records are produced to it."""
    parked = frame(fetch_request("full", wait_ms=PARKED_MS, min_bytes=2**31 - 1))
    with target.connect() as waiting, target.connect() as producer:
        send_what_goes(waiting, parked * PARKED)
        time.sleep(0.2)
        for _ in range(5):
            producer.send(
                b"".join(encode_request(1, "p", produce_request("full", honest_batch(1, b"x"))))
            )
        target.note(produced=answers(producer, 5))
        yield
