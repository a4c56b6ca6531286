"""Makes an OpenTelemetry span for each run of a handler.

    the producer's span --parent--> run 1 (failed) <--link-- run 2 (failed) <--link-- run 3

The producer's context is in the headers that the global propagators read (``traceparent``).  It
stays with the record in retry topics and dead letters, because they keep the record's headers.
The previous run is known from the record's story (`Story.trace`) or, if the record was released
and delivered to this process again, from memory.  A batch has one span, with a link to the
producer's span of each record.

This module is imported only if the application uses OpenTelemetry (`logs.watch`).  The SDK is
responsible for sampling and exporting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from opentelemetry.context import Context
from opentelemetry.propagate import extract, inject
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import (
    Link,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    get_tracer_provider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sharegroup.worker.decisions.messages import class_name, message_of, trace_of
from sharegroup.worker.middleware import Call, Proceed
from sharegroup.worker.ports import Header
from sharegroup.worker.records.outcomes import HandlerDecision
from sharegroup.worker.records.record import Record
from sharegroup.worker.redaction import TEXT_CHARACTERS_MAX, Redaction

TRACER = "sharegroup.worker"
TRACEPARENT = "traceparent"
REMEMBERED_MAX = 10_000
"""The maximum number of unsuccessful runs remembered, for links from their next runs."""
LINKS_MAX = 128
"""The maximum number of links of a batch's span, as SDKs keep this many by default."""

OVER = (None, "accept")
"""Explicit decisions after which there is no further run; None if the handler made none."""

Place = tuple[str, int, int]


class Tracing:
    """A middleware that traces handler runs, and a sender hook that adds the trace context."""

    __slots__ = ("_before", "_remembered_max", "_tracer")

    def __init__(self, tracer: Tracer, *, remembered_max: int = REMEMBERED_MAX) -> None:
        self._tracer = tracer
        self._remembered_max = remembered_max
        self._before: OrderedDict[Place, str] = OrderedDict()

    async def __call__(self, call: Call, proceed: Proceed) -> Any:
        """Run the handler in a new span."""
        with self._span(call) as span:
            try:
                result = await proceed(call)
            except BaseException as error:
                _failed(span, error, call.route.redaction)
                self._remember(call.records, span)
                raise
            # After an explicit decision there may be another run, too.
            self._remember([record for record in call.records if record.decision not in OVER], span)
            return result

    def before_send(self, _topic: str, headers: MutableSequence[Header]) -> None:
        """Add the current trace context to the headers of a record that is sent."""
        inject(headers, setter=_HeaderSetter())

    @contextmanager
    def _span(self, call: Call) -> Iterator[Span]:
        contexts = [_context_of(record) for record in call.records[:LINKS_MAX]]
        is_batch = call.route.shape.is_batch
        with self._tracer.start_as_current_span(
            f"process {call.record.topic}",
            # A span has one parent, so a batch has links to the spans of its records instead.
            context=None if is_batch else contexts[0],
            kind=SpanKind.CONSUMER,
            links=[*(_links_to(contexts) if is_batch else ()), *self._links_before(call.records)],
            attributes=_attributes(call),
            # `_failed` does both, with redacted texts.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    def _links_before(self, records: Sequence[Record]) -> Iterator[Link]:
        for record in records[:LINKS_MAX]:
            # From memory first: a release leaves no story, so only this process knows of that run.
            traceparent = self._before.pop(_place_of(record), None) or record.story.trace
            context = None if traceparent is None else _parsed(traceparent)
            if context is not None:
                yield Link(context, {"sharegroup.link": "attempt before"})

    def _remember(self, records: Sequence[Record], span: Span) -> None:
        trace = _written(span.get_span_context())
        for record in records:
            record.story = replace(record.story, trace=trace)
            # The story goes with a copy of the record; the record itself may also be delivered
            # again.
            self._before[_place_of(record)] = trace
        while len(self._before) > self._remembered_max:
            self._before.popitem(last=False)


def tracing() -> Tracing | None:
    """Return the tracing middleware; None if the application has set no tracer provider."""
    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        return None
    return Tracing(provider.get_tracer(TRACER))


def _failed(span: Span, error: BaseException, redaction: Redaction | None) -> None:
    name = type(error).__name__
    if isinstance(error, HandlerDecision):  # A decision of the handler, not a failure.
        span.set_attribute("sharegroup.outcome", name)
        return
    span.set_attribute("error.type", class_name(error))
    message = message_of(error, TEXT_CHARACTERS_MAX, redaction)
    attributes = {
        "exception.type": class_name(error),
        "exception.message": message,
        "exception.stacktrace": trace_of(error, redaction),
    }
    span.add_event("exception", attributes)
    span.set_status(Status(StatusCode.ERROR, f"{name}: {message}"))


def _attributes(call: Call) -> dict[str, str | int]:
    record = call.record
    attributes: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": record.topic,
        "messaging.consumer.group.name": call.route.group,
        "sharegroup.handler": call.route.shape.name,
    }
    if call.route.shape.is_batch:
        attributes["messaging.batch.message_count"] = len(call.records)
        return attributes
    attributes |= {
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
        "sharegroup.attempt": record.attempt,
        "sharegroup.delivery_attempt": record.delivery_attempt,
    }
    if record.key is not None:
        attributes["messaging.kafka.message.key"] = record.key.decode("utf-8", "replace")
    return attributes


def _links_to(contexts: Sequence[Context]) -> Iterator[Link]:
    for context in contexts:
        producer = get_current_span(context).get_span_context()
        if producer.is_valid:
            yield Link(producer)


def _context_of(record: Record) -> Context:
    # An empty context: without the headers, the slot's current span must not become the parent.
    return extract(record.headers, context=Context(), getter=_HeaderGetter())


def _written(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _parsed(traceparent: str) -> SpanContext | None:
    carrier = {TRACEPARENT: traceparent}
    context = TraceContextTextMapPropagator().extract(carrier, context=Context())
    span_context = get_current_span(context).get_span_context()
    return span_context if span_context.is_valid else None


def _place_of(record: Record) -> Place:
    delivery = record.delivery
    return (delivery.topic, delivery.partition, delivery.offset)


class _HeaderGetter(Getter[Sequence[Header]]):
    """Reads record headers for OpenTelemetry's propagators."""

    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        """Return the values of a header; None if there are none."""
        values = [value for name, value in carrier if name == key and value is not None]
        # Headers may have any bytes, all of which Latin-1 decodes.
        return [value.decode("latin-1") for value in values] or None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        """Return the names of all headers."""
        return [name for name, _ in carrier]


class _HeaderSetter(Setter[MutableSequence[Header]]):
    """Adds record headers for OpenTelemetry's propagators."""

    def set(self, carrier: MutableSequence[Header], key: str, value: str) -> None:
        """Add a header unless the application has set it."""
        if all(name != key for name, _ in carrier):
            carrier.append((key, value.encode("latin-1")))
