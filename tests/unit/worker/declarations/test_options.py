"""What `share_group` takes, and what it says of everything else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import (
    App,
    Batching,
    BrokerDeadLetter,
    DeadLetter,
    Holding,
    MemoryStore,
    OnUnreadable,
    Payload,
    RateLimit,
    Retry,
    StartFrom,
    share_group,
)
from sharegroup.worker.app import OPTIONS
from sharegroup.worker.declarations.foreign_options import ELSEWHERE, OF_AN_APP
from sharegroup.worker.declarations.foreign_settings import ROWS
from sharegroup.worker.declarations.options import RouteOptions


@dataclass
class Order:
    total: int


async def bill(order: Order) -> None: ...


async def audit(order: Order) -> None: ...


async def load(orders: list[Order]) -> None: ...


def declared(handler: Any = bill, *, topics: Any = "orders", **options: Any) -> Any:
    return share_group("billing", topics=topics, handler=handler, **options).route


def test_defaults_lose_nothing_and_try_again() -> None:
    route = declared()
    assert route.topics == ("orders",)
    assert route.retry == Retry(
        max_attempts=5, initial_delay="1s", multiplier=3.0, max_delay="1h", jitter=0.2
    )
    assert route.dead_letter == DeadLetter(None)
    assert route.unreadable == "dead_letter"
    assert route.start_from == "earliest"
    assert (route.concurrency, route.processes, route.max_handling_seconds) == (32, 0, 300.0)
    assert route.retry_tiers == (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0)
    assert route.own_topic == "billing.retry"


def test_options_may_be_written_short() -> None:
    route = declared(
        topics=["orders", "returns"],
        dead_letter="orders.dead",
        rate_limit="100/s",
        max_handling="2m",
        retry_tiers=("200ms", "1s"),
        name="biller",
    )
    assert route.topics == ("orders", "returns")
    assert route.dead_letter == DeadLetter("orders.dead")
    assert route.rate_limit == RateLimit(100.0, 1.0)
    assert route.max_handling_seconds == 120.0
    assert route.retry_tiers == (0.2, 1.0)
    assert route.shape.name == "biller"
    assert declared(load, batch=20).batching == Batching(size=20)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("5/m", RateLimit(5.0, 60.0)),
        ("10/2s", RateLimit(10.0, 2.0)),
        ("0.5 / h", RateLimit(0.5, 3_600.0)),
        (RateLimit(7, burst=2), RateLimit(7, burst=2)),
    ],
)
def test_rate_limit_is_read(written: object, expected: RateLimit) -> None:
    assert declared(rate_limit=written).rate_limit == expected


def test_options_can_be_turned_off_with_none() -> None:
    route = declared(retry=None, dead_letter=None, max_handling=None, rate_limit=None)
    assert route.retry is None
    assert route.dead_letter is None
    assert route.max_handling_seconds is None


@pytest.mark.parametrize(("name", "instead"), ELSEWHERE.items(), ids=ELSEWHERE)
def test_option_of_another_library_is_refused_with_its_replacement(name: str, instead: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        share_group("billing", handler=bill, **{name: 1})
    assert str(raised.value) == (
        f"share group 'billing', handler bill: {name} is not an option of a share group; {instead}"
    )


@pytest.mark.parametrize(
    ("name", "contained"),
    [
        ("seek", "sharegroup groups --reset-offsets"),
        ("offsets", "a share group has no position to move"),
        ("manual_offset_management", "return, raise, or record.accept()"),
        ("enable_auto_commit", "return, raise, or record.accept()"),
        ("auto_offset_reset", "start_from="),
        ("pause", "record.pause(delay)"),
        ("resume", "no member owns a partition"),
        ("long_running_job", "max_handling="),
        ("virtual_partitions", "order_by="),
        ("filter", "only=..."),
        ("max_poll_records", "concurrency="),
        ("session_timeout_ms", "'share.session.timeout.ms'"),
        ("max_retries", "Retry(max_attempts="),
        ("acks_late", "always settled after its handler"),
        ("eta", "delay="),
    ],
)
def test_well_known_names_are_in_the_table(name: str, contained: str) -> None:
    assert contained in ELSEWHERE[name]


NAMES = json.loads((Path(__file__).parent / "foreign_names.json").read_text())
"""The names of options elsewhere, read from the sources of these releases."""


@pytest.mark.parametrize("whose", NAMES["handlers"])
def test_every_option_of_a_handler_elsewhere_has_a_replacement(whose: str) -> None:
    ours = {*RouteOptions.__annotations__, "topics"}
    names = NAMES["handlers"][whose]
    assert [name for name in names if name not in ELSEWHERE and name not in ours] == []


@pytest.mark.parametrize("whose", NAMES["apps"])
def test_every_setting_of_an_application_elsewhere_has_a_replacement(whose: str) -> None:
    names = NAMES["apps"][whose]
    assert [name for name in names if name not in OF_AN_APP and name not in OPTIONS] == []
    with pytest.raises(InvalidConfig, match=r"is not an option of an App; "):
        App("shop", **{names[-1]: 1})


def test_tables_name_no_setting_twice() -> None:
    assert not set(OF_AN_APP) & set(OPTIONS)
    names = [name for _, of_row in ROWS for name in of_row.split()]
    assert len(names) == len(set(names))


def test_table_of_foreign_options_has_no_option_of_ours() -> None:
    assert not set(ELSEWHERE) & set(RouteOptions.__annotations__)


def test_misspelt_option_names_the_nearest() -> None:
    with pytest.raises(InvalidConfig, match=r"concurency; did you mean concurrency\?"):
        declared(concurency=3)


def test_option_like_no_other_lists_all() -> None:
    with pytest.raises(
        InvalidConfig, match="unknown option xyz; the options are: batch, breaker, concurrency, "
    ):
        declared(xyz=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency=0; expected 1 to 100000, or 'auto'"),
        ({"concurrency": True}, "concurrency=True; expected 1 to"),
        ({"concurrency": "many"}, "concurrency='many'; expected 1 to"),
        ({"processes": -1}, "processes=-1; expected 0 to 1000"),
        ({"in_flight_bytes": 0}, "in_flight_bytes=0; expected 1 to"),
        ({"retry": 3}, r"retry=3; expected Retry\(max_attempts=..., initial_delay=...\), or None"),
        ({"dead_letter": 3}, "dead_letter=3; expected a topic's name, DeadLetter"),
        ({"dead_letter": "a b"}, "dead_letter: DeadLetter: topic 'a b'; expected"),
        ({"rate_limit": "fast"}, "rate_limit: expected a RateLimit, or a text like '100/s'"),
        ({"rate_limit": "0/s"}, r"rate_limit: RateLimit: records=0\.0, seconds=1\.0; expected"),
        ({"max_handling": "soon"}, "max_handling: a duration: expected .* got 'soon'"),
        ({"max_handling": 0}, "max_handling=0; expected more than 0, or None"),
        ({"batch": 10}, r"batch: its payload is not annotated list\[...\]"),
        ({"order_by": "customer"}, "order_by='customer'; expected 'key', or a function"),
        ({"unreadable": "skip"}, "unreadable='skip'; expected dead_letter or reject or release"),
        ({"start_from": "newest"}, "start_from='newest'; expected earliest or latest"),
        ({"steering": 1}, r"steering=1; expected True if waiting records"),
        ({"steering": True, "retry": None}, "steering: with retry=None no record waits"),
        ({"retry_tiers": ()}, r"retry_tiers=\(\); expected growing delays"),
        ({"retry_tiers": ("5s", "1s")}, r"retry_tiers=\(5\.0, 1\.0\); expected growing delays"),
        ({"retry_tiers": ("5s", 5)}, r"retry_tiers=\(5\.0, 5\.0\); expected growing delays"),
        ({"holding": 3}, "holding=3; expected Holding"),
        ({"group_configs": "x"}, "group_configs='x'; expected a dict by Kafka's names"),
        ({"rate_limit": 100}, "rate_limit=100; expected a text like '100/s'"),
        ({"topics": 3}, "topics=3; expected a topic's name, or several"),
        ({"payload": "json"}, r"payload='json'; expected a Payload"),
        ({"topics": ()}, "it has no topics"),
        ({"topics": ("orders", "orders")}, r"topics=\('orders', 'orders'\); expected each"),
        ({"topics": "bad topic"}, "topic 'bad topic'; expected 1 to 249"),
        ({"dead_letter": "orders"}, "dead_letter: topic 'orders' is one that the handler reads"),
        ({"topics": "billing.dead"}, "dead_letter: topic 'billing.dead' is one that the handler"),
        ({"topics": "billing.retry"}, "topic 'billing.retry' is the group's own"),
    ],
)
def test_value_that_makes_no_sense_is_refused_by_name(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"share group 'billing', handler bill: {message}"):
        declared(**options)


def test_order_in_a_batch_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="order_by: a batch handler has no order"):
        declared(load, order_by="key")


def test_process_must_be_able_to_find_its_handler() -> None:
    async def here(order: Order) -> None: ...

    with pytest.raises(
        InvalidConfig, match="a handler process finds the handler by module and name"
    ):
        declared(here, processes=2)


def test_decorator_without_parentheses_is_refused_with_the_correct_form() -> None:
    with pytest.raises(InvalidConfig, match=r"group's name, got <function bill .*write @app"):
        share_group(bill)


@pytest.mark.parametrize("group", ["", "two words", "x" * 221, None, "a/b"])
def test_group_must_have_a_name_that_topics_can_have(group: object) -> None:
    with pytest.raises(InvalidConfig, match=r"expected 1 to 220 .* named <group>\.retry"):
        share_group(group, topics="orders", handler=bill)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeadLetter(partitions=0),
        lambda: DeadLetter("a b"),
        lambda: BrokerDeadLetter(".."),
        lambda: RateLimit(0),
        lambda: RateLimit(1, burst=0),
        lambda: Batching(size=0),
        lambda: Batching(wait_seconds=-1),
        lambda: Holding(records=-1),
        lambda: DeadLetter(partitions="3"),
        lambda: DeadLetter(retention="for ever"),
        lambda: RateLimit("100"),
        lambda: RateLimit(1, burst="2"),
        lambda: Batching(size="10"),
        lambda: Batching(wait_seconds="1s"),
        lambda: Holding(longest_seconds="5s"),
        lambda: Holding(records=2.5),
        lambda: Payload(decode=3),
        lambda: Payload(decode=bytes, encode="json"),
        lambda: App(3),
        lambda: App("orders").topic("orders", partitions="3"),
    ],
)
def test_declaration_that_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(InvalidConfig, match="expected"):
        make()


def test_retention_may_have_no_end() -> None:
    assert DeadLetter(retention=None).retention_seconds is None
    assert DeadLetter(retention="2d").retention_seconds == 172_800.0


@pytest.mark.parametrize(
    ("name", "given", "member"),
    [
        ("start_from", "latest", StartFrom.LATEST),
        ("unreadable", "release", OnUnreadable.RELEASE),
    ],
)
def test_enum_option_accepts_a_member_or_a_string(name: str, given: str, member: StrEnum) -> None:
    for value in (given, member):
        route = declared(**{name: value})
        assert getattr(route, name) is member
        assert getattr(route, name) == given


@pytest.mark.parametrize(
    ("shared", "app", "message"),
    [
        ("fleet", App("shop", store=MemoryStore()), r"requires App\(\.\.\., announce=True\)"),
        ("store", App("shop", announce=True), r"'store' requires a store: App\(\.\.\., store="),
    ],
)
def test_shared_rate_limit_is_refused_without_what_it_needs(
    shared: Any, app: App, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        app.share_group(
            "billing", topics="orders", handler=bill, rate_limit=RateLimit(1, shared=shared)
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shared": "group"}, "shared='group'; expected 'fleet' or 'store'"),
        ({"assumed_processes": 0}, "assumed_processes=0; expected 1 to 10000"),
        ({"assumed_processes": True}, "assumed_processes=True; expected 1 to 10000"),
    ],
)
def test_shared_rate_limit_of_nonsense_is_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        RateLimit(1, **options)
