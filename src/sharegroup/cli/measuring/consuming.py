"""Share consumers that take so many records together: one here, or each in a process of its own.

    parent    spawn ---> all ready ---> start ................... results, one from each
    consumer         join                | poll, count, poll, ... |
                                         '- together they take `count` records -'

Python has one thread that computes in each process, so consumers that shall share the work of
two processors are processes.  They share one number: how many records all of them have taken.
Latency is from a record's timestamp to its delivery, by the clocks of the two machines.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, Protocol

import click

from sharegroup.cli.asking import line_of
from sharegroup.cli.measuring.figures import Flow, consuming_line
from sharegroup.cli.running import Stop, run
from sharegroup.client.records import Record
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.errors import KafkaError

POLL_SECONDS = 0.1
READY_SECONDS_MAX = 60.0
STOPPING = (signal.SIGINT, signal.SIGTERM)


class Total(Protocol):
    """How many records all consumers have taken."""

    value: int

    def get_lock(self) -> AbstractContextManager[Any]: ...


class OwnTotal:
    """The number of a consumer that is alone."""

    def __init__(self) -> None:
        self.value = 0

    def get_lock(self) -> AbstractContextManager[Any]:
        return nullcontext()


@dataclass(frozen=True, slots=True)
class ConsumePlan:
    """What to take, and how to get in; it goes to another process, so it is plain."""

    topic: str
    count: int
    idle_ms: int
    """Nothing for so long is the end."""
    interval_ms: int
    detailed: bool
    client_options: Mapping[str, Any] = field(repr=False)
    """Of each ShareConsumer; there may be passwords among them."""


@dataclass(slots=True)
class Consumed:
    """What one consumer took; ``last_ms`` is when its last record came, by the wall clock."""

    client_id: str
    flow: Flow = field(default_factory=Flow)
    last_ms: int = 0
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    error: str = ""
    stopped: int = 0
    """The exit code of the signal that ended it, if one did."""


async def consume(
    plan: ConsumePlan,
    total: Total,
    stop: Stop,
    *,
    index: int = 1,
    started: Callable[[], object] = lambda: None,
) -> Consumed:
    """Take records until all consumers together have enough, or none comes any more."""
    consumer = ShareConsumer(plan.topic, **plan.client_options)
    consumed = Consumed(plan.client_options["client_id"])
    started()
    progress = _Progress(plan, index)
    idle_since = time.monotonic()
    try:
        while total.value < plan.count and not stop.is_set():
            records = await consumer.poll(POLL_SECONDS)
            if not records:
                if time.monotonic() - idle_since > plan.idle_ms / 1000:
                    break
                continue
            idle_since = time.monotonic()
            consumed.last_ms = time.time_ns() // 1_000_000
            _count(consumed.flow, records, consumed.last_ms)
            with total.get_lock():
                total.value += len(records)
            progress.look(consumed)
        await consumer.commit()
        consumed.metrics = consumer.metrics()
        consumed.stopped = stop.code
    finally:
        await consumer.close()
    return consumed


def consume_in_processes(plan: ConsumePlan, count: int) -> tuple[int, list[Consumed]]:
    """Run ``count`` consumers; when they began, by the wall clock, and what each took."""
    context = multiprocessing.get_context("spawn")  # A fork would take the event loop along.
    total = context.Value("q", 0)
    barrier = context.Barrier(count + 1)
    pipes, children = [], []
    for index in range(1, count + 1):
        ours, theirs = context.Pipe(duplex=False)
        # Each has a client id of its own.
        own = {**plan.client_options, "client_id": f"{plan.client_options['client_id']}-{index}"}
        arguments = (replace(plan, client_options=own), index, total, barrier, theirs)
        child = context.Process(target=_child, args=arguments, daemon=True)
        child.start()
        theirs.close()  # Or its end would not be noticed.
        pipes.append(ours)
        children.append(child)
    stopped: list[int] = []

    def enough(number: int, _: object) -> None:
        if stopped:
            raise KeyboardInterrupt  # The second signal does not wait.
        stopped.append(number)
        total.value = plan.count

    handlers = {number: signal.signal(number, enough) for number in STOPPING}
    try:
        start_ms = _begin(barrier)
        results = [_result(pipe, index) for index, pipe in enumerate(pipes, 1)]
        results[0].stopped = 128 + stopped[0] if stopped else 0
        return start_ms, results
    finally:
        total.value = plan.count  # Whatever happened, nobody needs to go on.
        for child in children:
            child.join(READY_SECONDS_MAX)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _begin(barrier: Barrier) -> int:
    """Let all consumers begin; when that was, by the wall clock."""
    try:
        barrier.wait(READY_SECONDS_MAX)
    except threading.BrokenBarrierError as error:
        text = f"the consumers' processes did not start in {READY_SECONDS_MAX:.0f} s"
        raise click.ClickException(text) from error
    return time.time_ns() // 1_000_000


def _child(
    plan: ConsumePlan, index: int, total: Total, barrier: Barrier, result: Connection
) -> None:
    def started() -> None:
        barrier.wait(READY_SECONDS_MAX)

    try:
        result.send(run(lambda stop: consume(plan, total, stop, index=index, started=started)))
    except KafkaError as error:
        result.send(Consumed(plan.client_options["client_id"], error=line_of(error)))


def _result(pipe: Connection, index: int) -> Consumed:
    try:
        consumed: Consumed = pipe.recv()
    except EOFError:
        return Consumed(f"consumer {index}", error="its process ended")
    return consumed


def _count(flow: Flow, records: list[Record], now_ms: int) -> None:
    # The hot loop of a perf test: what it does not need, it must not cost.
    add, size, again = flow.latencies.add, 0, 0
    for record in records:
        if record.value is not None:
            size += len(record.value)
        if record.key is not None:
            size += len(record.key)
        if record.delivery_count > 1:
            again += 1
        add(max(0, now_ms - record.timestamp_ms))
    flow.records += len(records)
    flow.bytes += size
    flow.redelivered += again


class _Progress:
    """Prints how one consumer does, every few seconds."""

    def __init__(self, plan: ConsumePlan, index: int) -> None:
        self._plan = plan
        self._index = index
        self._before_ms = time.time_ns() // 1_000_000
        self._before = (0, 0)

    def look(self, consumed: Consumed) -> None:
        if not self._plan.detailed or consumed.last_ms - self._before_ms < self._plan.interval_ms:
            return
        flow = consumed.flow
        records, size = self._before
        recent = Flow(flow.records - records, flow.bytes - size)
        line = consuming_line(flow, recent, self._before_ms, consumed.last_ms, self._index)
        click.echo(line)
        self._before, self._before_ms = (flow.records, flow.bytes), consumed.last_ms
