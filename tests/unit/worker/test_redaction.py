"""`App(redact=...)`: no text of an exception is written anywhere before the function saw it."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sharegroup.errors import InvalidConfig
from sharegroup.worker import App, DeadLetter, Reject, Retry
from sharegroup.worker.events import Event
from sharegroup.worker.telemetry import logs
from sharegroup.worker.telemetry.logs import EventLog
from sharegroup.worker.telemetry.tracing import Tracing

SECRET = "hunter2-5a7e"
RETRY = Retry(max_attempts=3, initial_delay="1m", multiplier=1, jitter=0)
PAGE = Path(__file__).parents[3] / "docs" / "retry-and-dead-letters.md"


def without_secret(text: str) -> str:
    return text.replace(SECRET, "***")


def broken(text: str) -> str:
    raise ValueError(f"I saw {text}")


async def coroutine(text: str) -> str:
    return text


async def log_in(_: bytes) -> None:
    try:
        raise KeyError(f"cause: {SECRET}")  # noqa: TRY301
    except KeyError as error:
        raise ConnectionError(f"password={SECRET} was refused") from error


async def reject(_: bytes) -> None:
    raise Reject(f"no such token {SECRET}")


@pytest.fixture(autouse=True)
def restored_root() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def run(
    of_app: Callable[[str], Any] | None,
    handler: Callable[..., Any],
    form: logs.Format = "text",
    **options: Any,
) -> tuple[dict[str, bytes | None], str, list[Event]]:
    """The headers of the one dead letter, everything that was written, and the events."""
    stream = io.StringIO()
    logs.configure("debug", form, stream)
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    app = App("shop", redact=of_app)
    app.middleware(Tracing(provider.get_tracer("test")))
    app.share_group(
        "billing",
        topics="orders",
        handler=handler,
        retry=RETRY,
        dead_letter=DeadLetter("dead"),
        **options,
    )
    EventLog().listen(app.events)
    events: list[Event] = []
    app.events.on("*", events.append)
    written: list[str] = []

    async def steps() -> dict[str, bytes | None]:
        async with app.test() as t:
            await t.send("orders", b"an order")
            await t.advance("1h")
            (letter,) = t.dead_letters
            for name in ("dead", "billing.retry", "billing.retry.30s"):
                written.extend(str(record.headers) for record in t.in_topic(name))
            return dict(letter.all_headers)

    headers = asyncio.run(steps())
    spans = [
        str((span.attributes, [event.attributes for event in span.events], span.status.description))
        for span in kept.get_finished_spans()
    ]
    assert spans
    return headers, "\n".join([stream.getvalue(), *written, *spans]), events


def text(headers: dict[str, bytes | None], name: str) -> str:
    return (headers[f"__sharegroup.{name}"] or b"").decode()


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("handler", [log_in, reject])
def test_secret_is_nowhere(handler: Callable[..., Any], form: logs.Format) -> None:
    assert SECRET in run(None, handler, form)[1]
    headers, written, events = run(without_secret, handler, form)
    assert SECRET not in str(headers)
    assert SECRET not in written
    assert "***" in text(headers, "dead.error.message")
    assert "***" in text(headers, "dead.error.traceback")
    assert "***" in text(headers, "attempts")
    assert "***" in (headers["__dlq.errors.message"] or b"").decode()
    failed = next(event for event in events if event.error is not None)
    assert SECRET in str(failed.error)
    assert failed.redaction is not None
    assert failed.redaction(str(failed.error)) == without_secret(str(failed.error))


@pytest.mark.parametrize(
    ("redact", "why"),
    [
        (broken, "ValueError was raised"),
        (lambda _: None, "NoneType was returned; expected str"),
        (lambda said: said.encode(), "bytes was returned; expected str"),
        (lambda said: coroutine(said), "coroutine was returned; expected str"),
    ],
)
def test_text_is_left_out_if_the_function_fails(redact: Callable[[str], Any], why: str) -> None:
    headers, written, events = run(redact, log_in)
    assert SECRET not in written
    assert text(headers, "dead.error.message") == "builtins.ConnectionError"
    assert text(headers, "dead.error.traceback") == "builtins.ConnectionError"
    failures = [event for event in events if event.name == "redaction.failed"]
    assert failures
    assert {event.details["why"] for event in failures} == {why}
    assert "event=redaction.failed" in written


def test_redaction_function_of_the_handler_is_called_first() -> None:
    headers, written, _ = run(None, log_in, redact=without_secret)
    assert SECRET not in str(headers) + written
    headers, _, _ = run(lambda said: said.replace("***", "left"), log_in, redact=without_secret)
    assert text(headers, "dead.error.message").endswith("password=left was refused")


def test_function_sees_the_text_before_it_is_cut() -> None:
    """A secret that begins just before the limit of a header is found whole."""

    async def fail_at_length(_: bytes) -> None:
        raise ValueError("x" * 3_995 + SECRET)

    _, written, _ = run(without_secret, fail_at_length)
    assert SECRET[:5] not in written


def test_coroutine_function_is_refused() -> None:
    with pytest.raises(
        InvalidConfig, match="redact must be a plain function, not a coroutine function"
    ):
        App("shop", redact=coroutine)  # type: ignore[arg-type]
    with pytest.raises(
        InvalidConfig, match="handler log_in: redact must be a plain function, not a"
    ):
        run(None, log_in, redact=coroutine)


def test_example_of_the_documentation_takes_passwords_out() -> None:
    (example,) = re.findall(r"```python\n(import re\n.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    assert isinstance(names["careful"], App)
    assert names["without_secrets"]("Token=abc and password=x y") == "Token=*** and password=*** y"
