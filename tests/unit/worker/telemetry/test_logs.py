"""One line for what happened, as key=value or as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

from sharegroup.worker.events import EVENTS, Event, Events
from sharegroup.worker.records.record import CURRENT, CURRENT_GROUP
from sharegroup.worker.telemetry import logs
from sharegroup.worker.telemetry.logs import EventLog, Format

FAILED = Event(
    "record.failed",
    group="billing",
    handler="bill",
    topic="orders",
    partition=3,
    offset=1207,
    attempt=2,
    error=TimeoutError('the "bank" hangs'),
    details={"step": "hold"},
)


@pytest.fixture(autouse=True)
def restored_root() -> Iterator[None]:
    """The root logger as it was."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


class Speechless(Exception):
    def __str__(self) -> str:
        return str(1 // 0)


class Recorded:
    """What a line needs to know of a `Record`."""

    attempt = 2

    class delivery:  # noqa: N801
        topic, partition, offset = "orders", 3, 1207


def configured(level: str, form: Format) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level, form, stream)
    return stream


def without_time(text: str) -> str:
    time, _, rest = text.partition(" ")
    assert time.endswith("Z")
    return rest


def told(event: Event) -> None:
    events = Events()
    EventLog().listen(events)
    events.tell(event)


def test_lines_of_a_supervised_process_have_its_number() -> None:
    for form, line in (
        ("text", "process=3 level=warning logger=a.b event=x y=1\n"),
        ("json", '"process": 3, "level": "warning", "logger": "a.b", "message": "event=x y=1"}\n'),
    ):
        stream = io.StringIO()
        logs.configure("info", "json" if form == "json" else "text", stream, process=3)
        logs.configure_as_parent()  # A handler process of this one, on its own standard error.
        assert logging.getLogger().handlers[0].formatter is not None
        text = (
            logging.getLogger()
            .handlers[0]
            .formatter.format(
                logging.LogRecord("a.b", logging.WARNING, "", 0, "event=x y=%d", (1,), None)
            )
        )
        assert f"{text}\n".endswith(line)


def test_an_event_is_one_line_of_pairs() -> None:
    stream = configured("info", "text")
    told(FAILED)
    assert without_time(stream.getvalue()) == (
        "level=warning logger=sharegroup.worker event=record.failed group=billing handler=bill "
        "topic=orders partition=3 offset=1207 attempt=2 error=builtins.TimeoutError "
        'reason="the \\"bank\\" hangs" step=hold\n'
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("x" * 2_000_000), "x" * 500),
        (Speechless(), '"(the exception text is not available: ZeroDivisionError in __str__)"'),
    ],
)
def test_no_error_fills_the_log_or_keeps_its_line_from_being_written(
    error: Exception, reason: str
) -> None:
    stream = configured("info", "text")
    told(Event("record.failed", error=error))
    assert stream.getvalue().endswith(f" reason={reason}\n")


def test_an_event_is_one_object_to_a_line() -> None:
    stream = configured("info", "json")
    told(FAILED)
    facts = json.loads(stream.getvalue())
    assert facts.pop("time").endswith("Z")
    assert facts == {
        "level": "warning",
        "logger": "sharegroup.worker",
        "event": "record.failed",
        "group": "billing",
        "handler": "bill",
        "topic": "orders",
        "partition": 3,
        "offset": 1207,
        "attempt": 2,
        "error": "builtins.TimeoutError",
        "reason": 'the "bank" hangs',
        "step": "hold",
    }


def test_events_below_the_log_level_have_no_listener() -> None:
    configured("info", "text")
    events = Events()
    EventLog().listen(events)
    assert {name for name in EVENTS if not events.wants(name)} == {
        "record.started",
        "record.succeeded",
        "record.released",
        "record.held",
        "record.postponed",
        "record.put_aside",
        "record.filtered",
        "record.expired",
        "record.due",
        "schedule.run",
        "infrastructure.created",
    }


def test_every_event_is_logged_at_level_debug() -> None:
    stream = configured("debug", "json")
    events = Events()
    EventLog().listen(events)
    for name in EVENTS:
        events.tell(Event(name))
    lines = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert lines == [*EVENTS]


def test_traceback_of_a_failure_is_logged_at_level_debug() -> None:
    stream = configured("debug", "json")
    try:
        _ = {}["total"]
    except KeyError as error:
        told(Event("record.failed", error=error))
    assert "KeyError: 'total'" in json.loads(stream.getvalue())["traceback"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_line_of_a_handler_has_the_position_of_its_record(form: Format) -> None:
    stream = configured("info", form)

    def handle() -> None:
        CURRENT.set(Recorded())
        CURRENT_GROUP.set("billing")
        logging.getLogger("shop.bank").info("charged %d", 5)

    copy_context().run(handle)
    text = stream.getvalue()
    if form == "text":
        assert without_time(text) == (
            'level=info logger=shop.bank message="charged 5" group=billing topic=orders '
            "partition=3 offset=1207 attempt=2\n"
        )
    else:
        facts = json.loads(text)
        assert (facts["message"], facts["group"]) == ("charged 5", "billing")
        assert (facts["topic"], facts["offset"]) == ("orders", 1207)


def test_extra_fields_are_added_and_lines_of_pairs_are_unchanged() -> None:
    stream = configured("info", "text")
    log = logging.getLogger("x")
    log.info("event=stopped syncs=%d", 3)
    log.info("plain", extra={"user": "a b"})
    log.info("")
    lines = [without_time(line) for line in stream.getvalue().splitlines()]
    assert lines == [
        "level=info logger=x event=stopped syncs=3",
        'level=info logger=x message=plain user="a b"',
        "level=info logger=x",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"), ("", '""'), ("a=b", '"a=b"'), ("zwei Wörter", '"zwei Wörter"'),
        ("line\nbreak", '"line\\nbreak"'), (7, "7"), (None, "None"), ("\x1b[2J", '"\\u001b[2J"'),
    ],
)  # fmt: skip
def test_a_value_never_ends_a_line_or_a_pair(value: Any, text: str) -> None:
    stream = configured("info", "text")
    logging.getLogger("x").info("", extra={"it": value})
    assert without_time(stream.getvalue()) == f"level=info logger=x it={text}\n"


def test_application_with_its_own_log_format_gets_the_same_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("WARNING"):
        told(Event("record.rejected", group="billing", topic="orders", partition=3, offset=7))
    assert caplog.messages == [
        "event=record.rejected group=billing topic=orders partition=3 offset=7"
    ]


def test_repeated_library_message_is_logged_once_a_minute() -> None:
    now = 0.0
    seldom = logs.Seldom(clock=lambda: now)

    def passes(name: str, text: str, *arguments: object, level: int = logging.ERROR) -> bool:
        return seldom.filter(logging.LogRecord(name, level, "", 0, text, arguments, None))

    away = "Unable connect to node with id %s: %s"
    assert passes("aiokafka", away, 1, "refused")
    now = 59.9
    assert not passes("aiokafka", away, 1, "reset")
    assert passes("aiokafka.consumer.fetcher", away, 1, "refused")
    assert passes("aiokafka", "Unable to update metadata from %s", [1])
    assert passes("orders", away, 1, "refused")
    assert passes("orders", away, 1, "refused")
    assert passes("aiokafka", away, 1, "refused", level=logging.DEBUG)
    now = 60.0
    assert passes("aiokafka", away, 1, "refused")


def test_number_of_remembered_library_messages_is_limited() -> None:
    seldom = logs.Seldom(clock=lambda: 0.0)
    lines = [logging.LogRecord("aiokafka", 40, "", 0, f"{n}", (), None) for n in range(1_000)]
    assert all(seldom.filter(line) for line in lines)
    assert len(seldom._said_at) <= 100
