"""Spans: one for each run, the producer's child, linked to the run before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from sharegroup.dead_letters.story import NEW, RecordOrigin, Story
from sharegroup.worker import App, Retry
from sharegroup.worker.declarations.handler import shape_of
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.middleware import Call
from sharegroup.worker.records.outcomes import Reject, Release
from sharegroup.worker.records.record import Record
from sharegroup.worker.telemetry.tracing import Tracing, tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


async def bill(order: bytes) -> None:
    """A handler."""


async def load(rows: list[bytes]) -> None:
    """A handler of batches."""


class Delivered:
    """A delivery as tracing looks at it."""

    key = b"customer-7"
    value = b"{}"
    timestamp_ms = 0
    delivery_count = 1
    deadline = 0.0

    def __init__(
        self, headers: Sequence[tuple[str, bytes | None]] = (), offset: int = 1207
    ) -> None:
        self.topic, self.partition, self.offset = "orders", 3, offset
        self.headers = headers


class Spans:
    """A provider of our own, whose spans are kept."""

    def __init__(self, **limits: int) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracing = Tracing(self.provider.get_tracer("test"), **limits)

    def all(self) -> tuple[ReadableSpan, ...]:
        return self._kept.get_finished_spans()

    def run(self, call: Call, handle: Callable[[Call], Awaitable[Any]]) -> BaseException | None:
        """Run a handler; what it raised."""
        try:
            asyncio.run(self.tracing(call, handle))
        except Exception as error:  # noqa: BLE001  Whatever the handler raised.
            return error
        return None


@pytest.fixture
def spans() -> Spans:
    return Spans()


def call_of(*records: Record, handler: Any = bill) -> Call:
    route = Route(group="billing", topics=("orders",), shape=shape_of(handler))
    return Call(route, b"{}", records)


def record_of(story: Story = NEW, **more: Any) -> Record:
    return Record(Delivered(**more), story, None)  # type: ignore[arg-type]  # No clock needed.


async def succeed(_call: Call) -> None:
    """Nothing is wrong."""


async def fail(_call: Call) -> None:
    raise TimeoutError("the bank hangs")


def test_span_of_a_run_is_the_child_of_the_senders_span(spans: Spans) -> None:
    record = record_of(headers=[("traceparent", TRACEPARENT.encode())])
    assert spans.run(call_of(record), succeed) is None
    [span] = spans.all()
    assert span.name == "process orders"
    assert span.kind is SpanKind.CONSUMER
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 1207,
        "messaging.kafka.message.key": "customer-7",
        "messaging.consumer.group.name": "billing",
        "sharegroup.handler": "bill",
        "sharegroup.attempt": 1,
        "sharegroup.delivery_attempt": 1,
    }
    assert span.status.status_code is StatusCode.UNSET
    assert record.story is NEW


def test_the_handler_runs_inside_of_its_span(spans: Spans) -> None:
    seen = []

    async def look(_call: Call) -> None:
        seen.append(get_current_span().get_span_context().span_id)

    spans.run(call_of(record_of()), look)
    [span] = spans.all()
    assert span.parent is None
    assert [span.context.span_id] == seen


def test_failure_is_recorded_in_its_span_and_the_next_run_is_linked_to_it(spans: Spans) -> None:
    """The story is in the record's headers, so another process may do the next run."""
    record = record_of()
    assert isinstance(spans.run(call_of(record), fail), TimeoutError)
    [first] = spans.all()
    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description == "TimeoutError: the bank hangs"
    assert (first.attributes or {})["error.type"] == "builtins.TimeoutError"
    assert [event.name for event in first.events] == ["exception"]

    elsewhere = Spans()
    origin = RecordOrigin("orders", 3, 1207, 0)
    retried = record_of(replace(record.story, failures=1, origin=origin), offset=5)
    elsewhere.run(call_of(retried), succeed)
    [second] = elsewhere.all()
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert (second.attributes or {})["sharegroup.attempt"] == 2


@pytest.mark.parametrize("outcome", [Release(), Reject("negative total")])
def test_a_decision_that_was_raised_is_no_fault(spans: Spans, outcome: Exception) -> None:
    async def decide(_call: Call) -> None:
        raise outcome

    spans.run(call_of(record_of()), decide)
    [span] = spans.all()
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["sharegroup.outcome"] == type(outcome).__name__


def test_redelivery_in_the_same_process_is_linked_without_headers(
    spans: Spans,
) -> None:
    released = record_of()

    async def release(call: Call) -> None:
        call.record.release()

    spans.run(call_of(released), release)
    spans.run(call_of(record_of()), succeed)
    spans.run(call_of(record_of()), succeed)
    first, second, third = spans.all()
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert third.links == ()


def test_number_of_remembered_runs_is_limited() -> None:
    spans = Spans(remembered_max=1)
    spans.run(call_of(record_of(offset=1)), fail)
    spans.run(call_of(record_of(offset=2)), fail)
    spans.run(call_of(record_of(offset=1)), succeed)
    spans.run(call_of(record_of(offset=2)), succeed)
    assert [len(span.links) for span in spans.all()] == [0, 0, 0, 1]


def test_a_batch_is_one_span_with_a_link_to_each_producer(spans: Spans) -> None:
    with_context = record_of(headers=[("traceparent", TRACEPARENT.encode())])
    spans.run(call_of(with_context, record_of(offset=2), handler=load), succeed)
    [span] = spans.all()
    assert span.parent is None
    assert [f"{link.context.span_id:016x}" for link in span.links] == [PARENT]
    assert (span.attributes or {})["messaging.batch.message_count"] == 2


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", b"\xff\x00")],
        [("traceparent", None)],
        [("traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01")],
    ],
)
def test_invalid_trace_context_is_ignored(
    spans: Spans, headers: list[tuple[str, bytes | None]]
) -> None:
    spans.run(call_of(record_of(headers=headers)), succeed)
    assert [span.parent for span in spans.all()] == [None]


def test_story_with_an_invalid_trace_has_no_link(spans: Spans) -> None:
    spans.run(call_of(record_of(Story(failures=1, trace="00-nonsense"))), succeed)
    assert [span.links for span in spans.all()] == [()]


def test_record_sent_in_a_handler_has_its_trace_context(spans: Spans) -> None:
    headers: list[tuple[str, bytes | None]] = [("kind", b"x")]
    own: list[tuple[str, bytes | None]] = [("traceparent", b"mine")]

    async def send(_call: Call) -> None:
        spans.tracing.before_send("invoices", headers)
        spans.tracing.before_send("invoices", own)

    spans.run(call_of(record_of()), send)
    [span] = spans.all()
    ids = f"{span.context.trace_id:032x}-{span.context.span_id:016x}"
    expected = f"00-{ids}-{int(span.context.trace_flags):02x}"
    assert headers == [("kind", b"x"), ("traceparent", expected.encode())]
    assert own == [("traceparent", b"mine")]


def test_nothing_is_traced_while_no_provider_is_set() -> None:
    """This process's tests set none: a provider can't be taken away again."""
    assert tracing() is None


def test_each_run_is_linked_to_the_previous_one_for_held_and_postponed_retries(
    spans: Spans,
) -> None:
    """One retry is held in the process, and one passes through a retry topic."""
    app = App("orders", bootstrap_servers="nowhere:1")
    app.middlewares.append(spans.tracing)

    @app.share_group(
        "billing", topics="orders", retry=Retry(initial_delay="1s", multiplier=60, jitter=0)
    )
    async def bill(order: bytes, record: Record) -> None:
        if record.attempt < 4:
            raise TimeoutError("the bank hangs")

    async def work() -> None:
        async with app.test() as t:
            headers = [("traceparent", TRACEPARENT)]
            sent = await t.send(bill, b"{}", headers=headers)
            await t.advance("2h")
            assert sent.outcome == "accepted"

    asyncio.run(work())
    runs = spans.all()
    assert [(span.attributes or {})["sharegroup.attempt"] for span in runs] == [1, 2, 3, 4]
    assert {f"{span.context.trace_id:032x}" for span in runs} == {TRACE}
    before = [[link.context.span_id for link in span.links] for span in runs]
    assert before == [[], *([span.context.span_id] for span in runs[:3])]
