"""The ACLs of a worker's user are those of docs/clusters.md."""

from __future__ import annotations

from typing import Any

from sharegroup.worker import App, BrokerDeadLetter
from sharegroup.worker.infrastructure.acls import required_acls


def acls_of(**options: Any) -> list[tuple[str, str, str, str]]:
    app = App("orders-service")

    @app.share_group("billing", topics="orders", **options)
    async def bill(order: bytes) -> None: ...

    return [
        (acl.operation.name, acl.resource_type.name, acl.name, acl.pattern.name)
        for acl in required_acls(app.route_list)
    ]


BARE = [
    ("READ", "TOPIC", "orders", "LITERAL"),
    ("READ", "GROUP", "billing", "LITERAL"),
]
RETRIES = [
    ("READ", "TOPIC", "billing.retry", "LITERAL"),
    ("READ", "TOPIC", "billing.retry.", "PREFIXED"),
    ("WRITE", "TOPIC", "billing.retry", "LITERAL"),
    ("WRITE", "TOPIC", "billing.retry.", "PREFIXED"),
    ("READ", "GROUP", "billing.retry-scheduler", "LITERAL"),
]
LETTERS = [("WRITE", "TOPIC", "orders.dead", "LITERAL")]


def test_records_retries_and_dead_letters() -> None:
    assert acls_of(dead_letter="orders.dead") == [*BARE, *RETRIES, *LETTERS]


def test_no_retries_and_letters_of_the_broker() -> None:
    assert acls_of(retry=None, dead_letter=BrokerDeadLetter("orders.dead")) == BARE


def test_handlers_of_one_topic_need_each_acl_once() -> None:
    app = App("orders-service")

    @app.share_group("billing", topics="orders", retry=None, dead_letter=None)
    async def bill(order: bytes) -> None: ...

    @app.share_group("audit", topics="orders", retry=None, dead_letter=None)
    async def audit(order: bytes) -> None: ...

    assert [(acl.operation.name, acl.name) for acl in required_acls(app.route_list)] == [
        ("READ", "orders"),
        ("READ", "billing"),
        ("READ", "audit"),
    ]
