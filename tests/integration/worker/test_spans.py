"""Spans of an application's runs, over whatever lies between them, on either broker."""

from __future__ import annotations

from sharegroup.client import Producer
from sharegroup.worker import Holding, Record, Retry
from tests.integration.worker.test_running import app_of, run, until
from tests.unit.worker.telemetry.test_tracing import TRACE, TRACEPARENT, Spans


@run
async def test_a_retry_from_a_topic_is_linked_to_the_run_before_in_its_senders_trace(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)
    spans, runs = Spans(), list[int]()
    app.middlewares.append(spans.tracing)

    async def bill(order: bytes, record: Record) -> None:
        runs.append(record.attempt)
        if record.attempt == 1:
            raise TimeoutError("the bank hangs")

    app.share_group(
        group, topics=topic, handler=bill,
        retry=Retry(initial_delay="200ms", jitter=0), holding=Holding(records=0),
    )  # fmt: skip
    async with app:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            headers = [("traceparent", TRACEPARENT.encode())]
            await producer.send_and_wait(topic, b"{}", headers=headers)
        await until(lambda: len(spans.all()) == 2)
    first, second = spans.all()
    assert runs == [1, 2]
    assert {f"{span.context.trace_id:032x}" for span in (first, second)} == {TRACE}
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
