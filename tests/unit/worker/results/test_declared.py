"""What `to` and `replies` need of the cluster: topics, permissions, and their totals."""

from __future__ import annotations

from sharegroup.worker import App
from sharegroup.worker.infrastructure.rights import SchedulesNeed, acls_of, needed
from sharegroup.worker.infrastructure.wanted import wanted_by


def application() -> App:
    app = App("orders-service")
    app.topic("billed", partitions=6, payload=int)

    @app.share_group(
        *("billing",), topics="orders", to="billed", replies=True, retry=None, dead_letter=None
    )
    async def bill(order: bytes) -> int:
        return len(order)

    return app


def test_topics_are_required_once_with_their_settings() -> None:
    topics = {topic.name: topic for topic in wanted_by(application()).topics}
    assert sorted(topics) == ["billed", "billing.retry", "orders", "orders-service.replies"]
    assert topics["billed"].purpose == "declared, results of billing"
    assert topics["billed"].partitions == 6
    replies = topics["orders-service.replies"]
    assert replies.partitions == 8
    assert replies.configs == {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "3600000",
    }


def test_permissions_are_listed_and_checked_at_the_start() -> None:
    app = application()
    acls = [(acl.operation.name, acl.name) for acl in acls_of(app)]
    assert acls == [
        ("READ", "orders"),
        ("WRITE", "billed"),
        ("READ", "billing"),
        ("WRITE", "orders-service.replies"),
        ("READ", "orders-service.replies"),
    ]
    rights = needed(app.route_list, SchedulesNeed.of(app))
    assert {name: sorted(right.name for right in rights[name]) for name in rights} == {
        "orders": ["READ"],
        "billed": ["WRITE"],
        "orders-service.replies": ["WRITE"],
    }


def test_handler_without_the_options_needs_none_of_it() -> None:
    app = App("orders-service")

    @app.share_group("billing", topics="orders", retry=None, dead_letter=None)
    async def bill(order: bytes) -> int:
        return len(order)

    assert [acl.name for acl in acls_of(app)] == ["orders", "billing"]
    assert [topic.name for topic in wanted_by(app).topics] == ["billing.retry", "orders"]
    assert app.route_list[0].return_codec is None
    assert app.route_list[0].output is None
