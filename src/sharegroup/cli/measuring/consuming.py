"""Share consumers that take a number of records together: one here, or several processes.

    parent    spawn ---> all ready ---> start ................... results, one from each
    consumer         join                | poll, count, poll, ... |
                                         '- together they take `count` records -'

A Python process runs one thread at a time, so consumers that use two processors need two
processes. They share one counter: the number of records that all of them have taken.
Latency is the time from a record's timestamp to its delivery, by the clocks of two machines.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, Protocol

import click

from sharegroup.cli.common.cluster_access import line_of
from sharegroup.cli.common.progress import showing_progress
from sharegroup.cli.common.running import (
    CLOSE_SECONDS,
    Stop,
    lacks_broker,
    run,
    telling_waits,
    until_stopped,
)
from sharegroup.cli.measuring.figures import Flow, consuming_line
from sharegroup.client.share.consumer.flow_control import FlowControl
from sharegroup.client.share.consumer.record import Record, UnreadableDelivery
from sharegroup.client.share.consumer.share_consumer import ShareConsumer
from sharegroup.errors import KafkaError

POLL_SECONDS = 0.1
READY_SECONDS_MAX = 60.0
STOPPING = (signal.SIGINT, signal.SIGTERM)


class Total(Protocol):
    """The shared counter of the records that all consumers have taken."""

    value: int

    def get_lock(self) -> AbstractContextManager[Any]:
        """Return a context manager that protects a change of ``value``."""


class OwnTotal:
    """The counter of a single consumer, which needs no lock."""

    def __init__(self) -> None:
        self.value = 0

    def get_lock(self) -> AbstractContextManager[Any]:
        return nullcontext()


@dataclass(frozen=True, slots=True)
class ConsumePlan:
    """The task of a consumer; it has plain values only, because it is sent to a process."""

    topic: str
    count: int
    idle_ms: int
    """A consumer ends after this time without a record."""
    where: str
    """The address of the cluster, for messages."""
    interval_ms: int
    detailed: bool
    date_format: str
    client_options: Mapping[str, Any] = field(repr=False)
    """The options of each ShareConsumer. They may contain passwords, so repr hides them."""


@dataclass(slots=True)
class Consumed:
    """The result of one consumer; ``last_ms`` is the wall-clock time of its last record."""

    client_id: str
    flow: Flow = field(default_factory=Flow)
    last_ms: int = 0
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    error: str = ""
    stopped: int = 0
    """The exit code of the signal that ended the consumer; 0 without a signal."""


async def consume(
    plan: ConsumePlan,
    total: Total,
    stop: Stop,
    *,
    index: int = 1,
    started: Callable[[], object] = lambda: None,
) -> Consumed:
    """Take records until all consumers together have enough, or none arrives in time."""
    consumer = ShareConsumer(plan.topic, **plan.client_options)
    consumed = Consumed(plan.client_options["client_id"])
    started()
    taking = _take(consumer, plan, total, stop, consumed, _Progress(plan, index))
    try:
        # The first consumer speaks for all: they wait for the same brokers.
        async with (
            telling_waits(plan.where, lambda: index == 1 and lacks_broker(consumer.metrics())),
            _progress(plan, total, index),
        ):
            await until_stopped(taking, stop)
        consumed.metrics = consumer.metrics()
        consumed.stopped = stop.code
    finally:
        if stop.code:
            await consumer.close(timeout=CLOSE_SECONDS)
        else:
            await consumer.close()
    return consumed


def _progress(plan: ConsumePlan, total: Total, index: int) -> AbstractAsyncContextManager[object]:
    """Return the progress of all consumers together, which the first one shows."""
    if index > 1 or plan.detailed:
        return nullcontext()
    return showing_progress(
        "consuming", lambda: total.value, total=lambda: plan.count, unit="records"
    )


async def _take(
    consumer: ShareConsumer,
    plan: ConsumePlan,
    total: Total,
    stop: Stop,
    consumed: Consumed,
    progress: _Progress,
) -> None:
    idle_since = time.monotonic()
    while total.value < plan.count and not stop.is_set():
        try:
            records = await consumer.poll(POLL_SECONDS)
        except UnreadableDelivery as error:
            FlowControl(consumer).keep(error)  # Released at the end, not delivered here again.
            consumed.error = consumed.error or line_of(error)
            continue
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


def consume_in_processes(plan: ConsumePlan, count: int) -> tuple[int, list[Consumed]]:
    """Run ``count`` consumers; return their start time (wall clock, ms) and their results."""
    context = multiprocessing.get_context("spawn")  # A fork would copy the event loop.
    total = context.Value("q", 0)
    barrier = context.Barrier(count + 1)
    pipes, children = [], []
    for index in range(1, count + 1):
        parent_end, child_end = context.Pipe(duplex=False)
        # Each consumer has its own client id.
        own = {**plan.client_options, "client_id": f"{plan.client_options['client_id']}-{index}"}
        arguments = (replace(plan, client_options=own), index, total, barrier, child_end)
        child = context.Process(target=_child, args=arguments, daemon=True)
        child.start()
        child_end.close()  # With a copy open here, `recv` would not notice the end of the child.
        pipes.append(parent_end)
        children.append(child)
    stopped: list[int] = []

    def enough(number: int, _: object) -> None:
        if stopped:
            raise click.exceptions.Exit(128 + number)  # The second signal does not wait.
        stopped.append(number)
        total.value = plan.count

    handlers = {number: signal.signal(number, enough) for number in STOPPING}
    try:
        start_ms = _begin(barrier)
        results = [_result(pipe, index) for index, pipe in enumerate(pipes, 1)]
        results[0].stopped = 128 + stopped[0] if stopped else 0
        return start_ms, results
    finally:
        total.value = plan.count  # Ends all consumers, also after an error here.
        for child in children:
            child.join(READY_SECONDS_MAX)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _begin(barrier: Barrier) -> int:
    """Let all consumers begin; return the time of the start (wall clock, ms)."""
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
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)  # Cancelled by a signal; the parent reads the end of the pipe.


def _result(pipe: Connection, index: int) -> Consumed:
    try:
        consumed: Consumed = pipe.recv()
    except EOFError:
        return Consumed(f"consumer {index}", error="its process ended")
    return consumed


def _count(flow: Flow, records: list[Record], now_ms: int) -> None:
    # The hot loop of a perf test: its cost would lower the measured throughput.
    add, size, redelivered = flow.latencies.add, 0, 0
    for record in records:
        if record.value is not None:
            size += len(record.value)
        if record.key is not None:
            size += len(record.key)
        if record.delivery_count > 1:
            redelivered += 1
        add(max(0, now_ms - record.timestamp_ms))
    flow.records += len(records)
    flow.bytes += size
    flow.redelivered += redelivered


class _Progress:
    """Prints a line with the progress of one consumer at every reporting interval."""

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
        line = consuming_line(
            *(flow, recent, self._before_ms, consumed.last_ms, self._index),
            date_format=self._plan.date_format,
        )
        click.echo(line)
        self._before, self._before_ms = (flow.records, flow.bytes), consumed.last_ms
