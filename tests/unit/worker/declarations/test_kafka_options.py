"""The option ``kafka``: what passes, and what is refused with what to use instead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroup.client.settings.consumer_config import ShareConsumerOptions
from sharegroup.client.settings.plain_consumer_config import ConsumerOptions
from sharegroup.errors import InvalidConfig
from sharegroup.worker import App
from sharegroup.worker.declarations.kafka_options import OWNED, allowed_options
from sharegroup.worker.transport.kafka import kafka_parts


@pytest.mark.parametrize(
    ("kind", "options"), [("share", ShareConsumerOptions), ("consumer", ConsumerOptions)]
)
def test_each_option_of_the_consumers_is_allowed_or_refused_with_a_hint(
    kind: str, options: Any
) -> None:
    names = set(options.__annotations__)
    assert names - set(allowed_options(kind)) - OWNED.keys() == set()
    assert set(allowed_options(kind)) - names == set()


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (
            "share",
            {"max.poll.records": 5},
            "kafka: max_poll_records is not an option",
        ),
        ("share", {"ssl_cafile": "a"}, r"App\(\.\.\., client=\{'ssl_cafile': \.\.\.\}\)"),
        ("share", {"fetch.max.wait.ms": 5}, "handlers decide how much is fetched ahead"),
        ("consumer", {"fetch.max.bytes": 5}, "handlers decide how much is fetched ahead"),
        ("share", {"fetch.min.byte": 5}, "did you mean fetch_min_bytes"),
        (
            "share",
            {"client.rack": "a", "client_rack": "b"},
            "is given twice",
        ),
        ("share", {3: 5}, "kafka: unknown option 3"),
        ("share", "client.rack=eu", "expected a dict of client options"),
    ],
)
def test_option_of_the_worker_is_refused(kind: str, options: Any, text: str) -> None:
    declare = getattr(App("shop"), f"{kind}_group")
    with pytest.raises(InvalidConfig, match=text):

        @declare("billing", topics="orders", kafka=options)
        async def bill(order: dict) -> None: ...


def test_handlers_of_a_group_have_the_same_options() -> None:
    app = App("shop")

    @app.share_group("billing", topics="orders", kafka={"client.rack": "a"})
    async def bill(order: dict) -> None: ...

    with pytest.raises(InvalidConfig, match="differ in kafka, which is a setting of the group"):

        @app.share_group("billing", topics="returns")
        async def repay(order: dict) -> None: ...


def test_members_of_the_group_get_the_options() -> None:
    app = App("shop", defaults={"kafka": {"fetch.min.bytes": 0}})

    @app.share_group("billing", topics="orders", kafka={"fetch.min.bytes": -1})
    async def bill(order: dict) -> None: ...

    async def main() -> None:
        parts = kafka_parts(app)
        try:
            with pytest.raises(InvalidConfig, match="fetch_min_bytes"):
                parts.open_source("billing", "orders", 1)
        finally:
            await parts.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"broker_url": "amqp://"}, "bootstrap_servers='host:port'"),
        ({"task_acks_late": True}, "always settled after its handler"),
        ({"strict_topics_namespacing": True}, "`sharegroup worker plan` shows all topics"),
        ({"rate_limit": "1/s"}, r"defaults=\{'rate_limit': \.\.\.\}"),
    ],
)
def test_option_of_another_framework_is_refused_by_an_app(options: Any, text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        App("shop", **options)
