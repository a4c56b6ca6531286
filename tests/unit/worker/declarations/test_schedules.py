"""Declarations of schedules: what is refused, and what the error says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.schedules.timing import Cron, Interval
from sharegroup.worker import App, Missed, Routed, ScheduledRun


@dataclass
class Order:
    total: int


def shop() -> tuple[App, Routed[Any, Any]]:
    app = App("shop")

    @app.share_group("billing", topics="orders")
    async def bill(order: Order) -> None: ...

    return app, bill


def test_a_decorator_declares_a_schedule_of_its_handler() -> None:
    app = App("shop")

    @app.cron("0 6 * * 1-5", timezone="Europe/Berlin", missed="all", revision=3)
    @app.share_group("reports", topics="reports")
    async def report(run: ScheduledRun) -> None: ...

    (declared,) = app.schedule_list
    definition = declared.definition()
    assert (definition.name, definition.topic, definition.revision) == ("report", "reports", 3)
    assert definition.timing == Cron("0 6 * * 1-5", "Europe/Berlin")
    assert (definition.missed, definition.sends_run) == (Missed.ALL, True)
    assert isinstance(report, Routed)
    assert [topic.name for topic in app.topic_list] == ["shop.schedules"]


def test_a_call_declares_a_schedule_with_a_payload() -> None:
    app, bill = shop()
    app.every("90s", to=bill, payload=Order(3), name="three", key="customer-7")
    app.every(60, to=bill, payload=Order(4), name="four")

    three, four = (declared.definition() for declared in app.schedule_list)
    assert (three.timing, three.value, three.record_key) == (
        Interval(90_000),
        b'{"total":3}',
        b"customer-7",
    )
    assert (four.timing, four.record_key) == (Interval(60_000), b"four")


def test_an_application_without_schedules_needs_no_topic_for_them() -> None:
    app, _ = shop()
    assert (app.topic_list, app.schedule_list) == ((), ())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "cannot take its payload.*sends the run itself, a ScheduledRun"),
        ({"payload": 7}, "cannot take its payload"),
        ({"payload": b"{}"}, "cannot take its payload"),
        ({"payload": Order(3), "name": "a b"}, "1 to 100 of the characters"),
        ({"payload": Order(3), "name": 7}, "1 to 100 of the characters"),
        ({"payload": Order(3), "topic": "other"}, "expected a topic of its handler: orders"),
        ({"payload": Order(3), "missed": "some"}, "expected one of 'skip', 'last', 'all'"),
        ({"payload": Order(3), "revision": 0}, "expected 1 or more"),
        ({"payload": Order(3), "key": 7}, "expected text or bytes"),
        (
            {"payload": Order(3), "kwargs": {}},
            "not an option of a schedule; payload=",
        ),
        ({"payload": Order(3), "mised": "all"}, "did you mean missed?"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], says: str) -> None:
    app, bill = shop()
    with pytest.raises(InvalidConfig, match=says):
        app.every("1m", to=bill, **options)
    assert app.schedule_list == ()


@pytest.mark.parametrize("interval", ["", "0s", "10ms", -1, "367d", None, float("nan")])
def test_a_wrong_interval_is_refused(interval: Any) -> None:
    app, bill = shop()
    with pytest.raises(InvalidConfig, match="expected"):
        app.every(interval, to=bill, payload=Order(3))


@pytest.mark.parametrize(("expression", "zone"), [(5, "UTC"), ("* * * * *", None)])
def test_a_wrong_type_is_refused(expression: Any, zone: Any) -> None:
    app, bill = shop()
    with pytest.raises(InvalidConfig, match="expected two texts"):
        app.cron(expression, timezone=zone, to=bill, payload=Order(3))


def test_two_schedules_of_one_name_are_refused() -> None:
    app, bill = shop()
    app.every("1m", to=bill, payload=Order(3))
    with pytest.raises(InvalidConfig, match="two schedules 'bill'; give one of them another name"):
        app.every("2m", to=bill, payload=Order(3))


def test_a_handler_of_another_application_is_refused() -> None:
    (_, bill), other = shop(), App("other")
    with pytest.raises(InvalidConfig, match="no handler of this application"):
        other.every("1m", to=bill, payload=Order(3))


def test_a_payload_above_the_limit_is_refused() -> None:
    app = App("shop")

    @app.share_group("billing", topics="orders")
    async def bill(order: str) -> None: ...

    with pytest.raises(InvalidConfig, match="expected at most 65536"):
        app.every("1m", to=bill, payload="x" * 65_537)
