"""What a redrive notes in its ledger when the producer fails in the middle of its copies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sharegroup.dead_letters.letter import Letter, letter_of
from sharegroup.dead_letters.queue import Chunk
from sharegroup.dead_letters.redrive import Redrive
from sharegroup.dead_letters.redrive_copies import RedriveCopies, RedriveOptions
from sharegroup.errors import InvalidRecord, MessageTooLarge, RequestTimedOut
from sharegroup.wire.batches.records import DecodedRecord


def letter(offset: int) -> Letter:
    headers = [
        ("tag", b"x"),
        ("__sharegroup.dead.reason", b"rejected"),
        ("__sharegroup.dead.group", b"billing"),
        ("__sharegroup.origin.topic", b"orders"),
        ("__sharegroup.origin.partition", b"0"),
        ("__sharegroup.origin.offset", b"7"),
        ("__sharegroup.origin.timestamp", b"8"),
    ]
    record: Any = SimpleNamespace(offset=offset, timestamp=8, key=None, value=b"v", headers=headers)
    typed: DecodedRecord = record
    return letter_of("dead", 0, typed)


class Writer:
    """A producer whose copies succeed or fail as they are told, by the number of the send."""

    is_confirmed = True

    def __init__(self, *outcomes: BaseException | None) -> None:
        self._outcomes = list(outcomes)

    async def send_content(self, topic: str, content: bytes, **more: Any) -> Any:
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, RequestTimedOut):
            raise outcome  # As for a topic whose metadata cannot be had.
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if outcome is None:
            future.set_result(None)
        else:
            future.set_exception(outcome)
        return future

    async def flush(self) -> None: ...


class Targets:
    """A cluster that has the topic ``billing.retry`` with one partition."""

    config = SimpleNamespace(topic_operation="READ")

    @contextmanager
    def call(self, _: float | None) -> Iterator[None]:
        yield

    async def retrying(self, _: object, *, subject: str) -> Any:
        assert subject == "describe_topics"
        partition = SimpleNamespace(
            partition_index=0, leader_id=0, leader_epoch=0, replica_nodes=(), isr_nodes=(),
            offline_replicas=(),
        )  # fmt: skip
        topic = SimpleNamespace(
            name="billing.retry", error_code=0, topic_id=None, is_internal=False,
            partitions=[partition], topic_authorized_operations=-1,
        )  # fmt: skip
        return SimpleNamespace(topics=[topic])


class Queue:
    """A dead-letter queue of three letters, and its ledger."""

    cluster: Any = Targets()
    ranges = ()

    def __init__(self) -> None:
        self.noted: dict[int, Any] = {}
        self.redriven: list[int] = []
        self.ledger = self

    async def create(self, cluster: object) -> None: ...

    async def prune(self, *_: object) -> None: ...

    async def note(self, producer: object, partition: int, offsets: list[int], **_: Any) -> None:
        self.redriven += offsets

    async def chunks_of(self, make: Any, *_: object, **more: Any) -> Any:
        yield Chunk(0, [make(letter(offset)) for offset in range(3)], frozenset(), 3)


def redrive(queue: Any, writer: Any) -> Redrive:
    return Redrive(queue, writer, RedriveOptions(confirmed=frozenset({"billing.retry"})))


@pytest.mark.parametrize("error", [RequestTimedOut("no metadata"), MessageTooLarge("too large")])
def test_durable_copies_are_noted_if_the_copy_that_is_sent_alone_cannot_be_handed_over(
    error: Exception,
) -> None:
    """A later run must skip their letters; otherwise it would send them a second time."""
    queue = Queue()
    run = redrive(queue, Writer(None, InvalidRecord("its batch"), None, error))

    async def test() -> None:
        if isinstance(error, RequestTimedOut):
            with pytest.raises(RequestTimedOut, match="no metadata"):
                await run.run(asyncio.Event())
        else:
            await run.run(asyncio.Event())

    asyncio.run(test())
    assert queue.redriven == [0, 2]
    assert run.done.sent["billing.retry"] == 2


@pytest.mark.parametrize(("count", "partition"), [(1, 0), (0, None)])
def test_copy_goes_to_the_partition_of_its_record_if_the_topic_still_has_it(
    count: int, partition: int | None
) -> None:
    cluster: Any = Targets()
    options = RedriveOptions(to="original", confirmed=frozenset({"orders"}))
    copies = RedriveCopies(cluster, options, at_ms=8)
    copies._partitions["orders"] = count
    chunk = Chunk(0, [copies.copy(letter(3))], frozenset(), 4)
    (copy,) = asyncio.run(copies.choose(chunk))
    assert (copy.letter, copy.target, copy.partition) == ((0, 3), "orders", partition)


@pytest.mark.parametrize(
    "options",
    [RedriveOptions(), RedriveOptions(confirmed=frozenset({"billing.retry"}), dry_run=True)],
    ids=["unconfirmed", "dry-run"],
)
def test_nothing_is_encoded_of_a_letter_that_is_not_sent(options: RedriveOptions) -> None:
    cluster: Any = Targets()
    assert RedriveCopies(cluster, options, at_ms=8).copy(letter(3)).content == b""
