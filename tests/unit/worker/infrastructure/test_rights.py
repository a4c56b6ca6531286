"""What a worker has to be allowed, and what it says when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from sharegroup.client.admin.calls import operations_of
from sharegroup.client.admin.types import TopicDescription
from sharegroup.errors import (
    GroupAuthorizationFailed,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from sharegroup.protocol_enums import AclOperation
from sharegroup.worker import App, BrokerDeadLetter
from sharegroup.worker.infrastructure.rights import check_rights, needed

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def application(**options: Any) -> App:
    app = App("orders-service")

    @app.share_group("billing", topics="orders", retry_tiers=["5s"], **options)
    async def bill(order: bytes) -> None: ...

    return app


class Told:
    """An admin client that answers what the test says."""

    principal = "User:ann"

    def __init__(self, topics: Mapping[str, Any] = {}, closed: Iterable[str] = ()) -> None:
        self.topics = topics
        self.closed = {*closed}
        self.groups: list[str] = []

    async def describe_topics(
        self, names: Iterable[str], *, include_authorized_operations: bool
    ) -> dict[str, Any]:
        assert include_authorized_operations
        return {name: self._topic(name) for name in names}

    def _topic(self, name: str) -> Any:
        told = self.topics.get(name, {READ, WRITE, DESCRIBE})
        if isinstance(told, Exception):
            return told
        operations = None if told is None else frozenset(told)
        return TopicDescription(name, None, False, (), operations)

    async def describe_transactions(self, ids: Iterable[str]) -> dict[str, Any]:
        return {
            name: TransactionalIdAuthorizationFailed("no")
            if name.startswith(tuple(self.closed))
            else TransactionalIdNotFound("none")
            for name in ids
        }

    async def list_consumer_group_offsets(self, groups: Mapping[str, Any]) -> dict[str, Any]:
        self.groups = [*groups]
        return {
            group: GroupAuthorizationFailed("no") if group in self.closed else {}
            for group in groups
        }


def check(admin: Any, **options: Any) -> None:
    asyncio.run(check_rights(application(**options).route_list, admin))


def test_a_route_reads_its_topics_moves_its_retries_and_writes_its_letters() -> None:
    assert needed(application().route_list) == {
        "orders": {READ},
        "billing.retry": {READ, WRITE},
        "billing.retry.5s": {READ, WRITE},
        "billing.retry.due": {READ, WRITE},
        "billing.dead": {WRITE},
    }
    broker = application(retry=None, dead_letter=BrokerDeadLetter("letters"))
    assert needed(broker.route_list) == {"orders": {READ}}


def test_check_passes_with_all_permissions() -> None:
    admin = Told()
    check(admin)
    assert admin.groups == ["billing", "billing.retry-scheduler"]


def test_error_names_all_missing_permissions() -> None:
    told = {
        "orders": TopicAuthorizationFailed("closed"),
        "billing.retry.5s": {READ, DESCRIBE},
        "billing.retry.due": {READ, DESCRIBE},
        "billing.dead": {DESCRIBE},
    }
    with pytest.raises(TopicAuthorizationFailed) as refused:
        check(Told(told))
    assert str(refused.value) == (
        "this user is not authorized for a topic (User:ann needs WRITE on topic 'billing.dead', "
        "'billing.retry.5s', 'billing.retry.due'; READ on topic 'orders')"
    )


def test_groups_that_are_closed_are_named() -> None:
    with pytest.raises(GroupAuthorizationFailed) as refused:
        check(Told(closed=["billing.retry-scheduler"]))
    assert "(User:ann needs READ on group 'billing.retry-scheduler')" in str(refused.value)
    with pytest.raises(GroupAuthorizationFailed, match=r"on group 'billing', 'billing\.retry-sch"):
        check(Told(closed=["billing", "billing.retry-scheduler"]))
    check(Told(closed=["billing.retry-scheduler"]), retry=None)


def test_transactional_ids_that_are_closed_are_named() -> None:
    check(Told(closed=["billing.retry-scheduler."]))
    check(Told(), steering=True)
    with pytest.raises(TransactionalIdAuthorizationFailed) as refused:
        check(Told(closed=["billing.retry-scheduler."]), steering=True)
    assert str(refused.value) == (
        "this user is not authorized for a transactional id (User:ann needs WRITE on transactional "
        "ids that begin with 'billing.retry-scheduler.')"
    )


def test_unknown_operations_and_missing_topics_pass_the_check() -> None:
    check(Told({"orders": UnknownTopicOrPartition("none"), "billing.dead": None}))


def test_check_passes_with_a_log_line_if_the_cluster_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Silent(Told):
        async def describe_topics(self, names: Any, **_: Any) -> dict[str, Any]:
            raise RequestTimedOut("nobody there")

    check(Silent())
    assert "event=rights.unknown" in caplog.text


@pytest.mark.parametrize(
    ("bits", "operations"),
    [
        (-(2**31), None),
        (0, None),
        (1 << 3, None),  # Read but not described: no broker means that.
        (1 << 8, {DESCRIBE}),
        (1 << 8 | 1 << 3 | 1 << 30, {DESCRIBE, READ}),
    ],
)
def test_operations_without_describe_are_unknown(
    bits: int, operations: set[AclOperation] | None
) -> None:
    assert operations_of(bits) == operations
