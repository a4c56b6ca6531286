"""Attacks by the content of records: bombs, counts that lie, times, compressed nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta

from kio.schema.produce.v12 import request as produce

from tests.attacks.batches import (
    EMPTY_RECORD,
    batch,
    bomb,
    empty_members,
    honest_batch,
    large_record,
    lying_batch,
    lying_compressed_batch,
    padded_bomb,
    undercounted_bomb,
)
from tests.attacks.honest import read_by_share_group
from tests.attacks.target import (
    Target,
    answers,
    frame,
    list_offsets_request,
    produce_request,
    produced,
)

MAX_TIMESTAMP = -3
INVALID_TIMESTAMP = 32
LARGE_BOMB_RECORDS = 9_000_000
PADDED_BOMB_RECORDS = 8_500_000
NOW_MS = 1_790_000_000_000
SMALL_BOMB_RECORDS = 200_000
TIMES_NAMED = 20
LYING_BATCHES = 1_000
MEMBERS_BYTES = 1_000_000
FILES_MAX = 500
YEAR_MS = 365 * 24 * 3600 * 1000


def make_topics(target: Target) -> None:
    """A plain topic, and one whose batches are decoded when they are produced."""
    target.make_topic("records")
    target.make_topic("compacted", cleanup_policy="compact")


def bomb_by_timestamp(target: Target) -> Iterator[None]:
    """5.8 KB with 9 million records, and the question for the latest timestamp."""
    target.note(code=produced(target.ask(produce_request("records", bomb(LARGE_BOMB_RECORDS)))))
    target.ask(list_offsets_request("records", [0], MAX_TIMESTAMP))
    yield


def bomb_to_compacted_topic(target: Target) -> Iterator[None]:
    """The same batch, to a topic that must look at keys."""
    target.note(code=produced(target.ask(produce_request("compacted", bomb(LARGE_BOMB_RECORDS)))))
    yield


def bomb_named_often(target: Target) -> Iterator[None]:
    """A few hundred bytes with 200,000 records, and one request that asks 20 times for them."""
    target.note(code=produced(target.ask(produce_request("records", bomb(SMALL_BOMB_RECORDS)))))
    target.ask(list_offsets_request("records", [0] * TIMES_NAMED, MAX_TIMESTAMP))
    target.ask(list_offsets_request("records", [0] * TIMES_NAMED, 1))
    yield


def bombs_that_are_accepted(target: Target) -> Iterator[None]:
    """As many records as a batch may claim, a record of 60 MB, and more records than claimed."""
    bombs = {
        "padded": padded_bomb(PADDED_BOMB_RECORDS),
        "large": large_record(),
        "undercounted": undercounted_bomb(LARGE_BOMB_RECORDS),
    }
    for name, records in bombs.items():
        target.note(**{name: produced(target.ask(produce_request("records", records)))})
        target.note(
            **{f"compacted_{name}": produced(target.ask(produce_request("compacted", records)))}
        )
    with target.connections(4) as connections:
        for connection in connections:
            for timestamp in (MAX_TIMESTAMP, 1, NOW_MS):
                connection.send(frame(list_offsets_request("records", [0], timestamp)))
        for connection in connections:
            answers(connection, 3)
        yield


def gzip_of_nothing(target: Target) -> Iterator[None]:
    """1 MB of empty gzip members in front of a record."""
    records = empty_members(MEMBERS_BYTES)
    target.note(code=produced(target.ask(produce_request("compacted", records))))
    target.ask(produce_request("records", records))
    target.ask(list_offsets_request("records", [0], MAX_TIMESTAMP))
    yield


def make_lying_topic(target: Target) -> None:
    """A topic for batches that lie."""
    target.make_topic("lies")


def lying_count(target: Target) -> Iterator[None]:
    """Batches that claim 2³¹-1 records, plain and compressed."""
    plain = produced(target.ask(produce_request("lies", lying_batch())))
    packed = produced(target.ask(produce_request("lies", lying_compressed_batch())))
    target.note(plain=plain, compressed=packed)
    yield


def honest_record_is_reached(target: Target) -> list[str]:
    """A record produced behind the lying batches reaches a share group within 10 s."""
    honest = honest_batch(1, b"behind the lies")
    code = produced(target.ask(produce_request("lies", honest)))
    if code:
        return [f"an honest record behind the lying batches: error code {code}"]
    if not read_by_share_group(target, "lies", b"behind the lies", group="readers-of-lies"):
        return ["a share group does not reach the record behind the lying batches in 10 s"]
    return []


def many_lying_counts(target: Target) -> Iterator[None]:
    """1,000 such batches in one request of 73 KiB, all for one partition."""
    partitions = tuple(
        produce.PartitionProduceData(index=0, records=lying_batch()) for _ in range(LYING_BATCHES)
    )
    request = produce.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=timedelta(seconds=30),
        topic_data=(produce.TopicProduceData(name="lies", partition_data=partitions),),
    )
    answer = target.ask(request).responses[0].partition_responses
    target.note(accepted=sum(int(partition.error_code) == 0 for partition in answer))
    yield


def few_files_are_made(target: Target) -> list[str]:
    """A lying batch rolls no segment: the data directory has about as many files as before."""
    files = sum(len(names) for _, _, names in os.walk(target.data))
    target.note(files=files)
    return [] if files < FILES_MAX else [f"{files} files in the data directory"]


def far_future(target: Target) -> Iterator[None]:
    """A record of a time in ten years, which retention by time would keep for as long."""
    late = batch(EMPTY_RECORD, count=1, timestamp_ms=time.time_ns() // 1_000_000 + 10 * YEAR_MS)
    code = produced(target.ask(produce_request("records", late)))
    target.note(code=code)
    if code != INVALID_TIMESTAMP:
        target.found.append(f"a record of the year 2036 or so: error code {code}, expected 32")
    yield
