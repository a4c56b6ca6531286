"""What differs between routes and a cluster, without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sharegroup.client.admin.types import ConfigEntry
from sharegroup.errors import InvalidConfig
from sharegroup.protocol_enums import ConfigSource
from sharegroup.worker.declarations.handler import shape_of
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.topics import (
    BrokerDeadLetter,
    DeadLetter,
    Replication,
    TopicDeclaration,
)
from sharegroup.worker.infrastructure.changes import (
    Change,
    ChangeKind,
    ExistingInfrastructure,
    ExistingTopic,
    changes,
    owned_names,
)
from sharegroup.worker.infrastructure.wanted import (
    RequiredGroup,
    RequiredInfrastructure,
    RequiredTopic,
    wanted,
)


async def bill(order: bytes) -> None:
    """A handler."""


async def refund(order: bytes) -> None:
    """Another one."""


def route(**more: Any) -> Route:
    options = {"group": "billing", "topics": ("orders",), "shape": shape_of(bill), **more}
    return Route(**options)


def entries(**values: str) -> dict[str, ConfigEntry]:
    return {
        name.replace("_", "."): ConfigEntry(
            name.replace("_", "."), value, ConfigSource.TOPIC, False, False
        )
        for name, value in values.items()
    }


def group_entry(name: str, value: str, source: ConfigSource) -> dict[str, ConfigEntry]:
    return {name: ConfigEntry(name, value, source, False, False)}


def between(
    topic: RequiredTopic | None = None,
    there: ExistingTopic | None = None,
    group: RequiredGroup | None = None,
    settings: Mapping[str, ConfigEntry] | None = None,
) -> list[Change]:
    return changes(
        RequiredInfrastructure((topic,) if topic else (), (group,) if group else ()),
        ExistingInfrastructure(
            {topic.name: there} if topic and there else {},
            {group.group: settings or {}} if group else {},
        ),
    )


def test_a_group_needs_its_topics_its_tiers_and_its_dead_letters() -> None:
    found = wanted([route(dead_letter=DeadLetter())])
    assert [(topic.name, topic.purpose) for topic in found.topics] == [
        ("billing.dead", "dead letters of billing"),
        ("billing.retry", "retries of billing"),
        ("billing.retry.10m", "retries of billing"),
        ("billing.retry.1h", "retries of billing"),
        ("billing.retry.2m", "retries of billing"),
        ("billing.retry.30s", "retries of billing"),
        ("billing.retry.5s", "retries of billing"),
        ("billing.retry.6h", "retries of billing"),
        ("billing.retry.due", "retries of billing"),
        ("orders", "handled by billing"),
    ]
    assert found.groups == (
        RequiredGroup(
            "billing",
            {
                "share.auto.offset.reset": "earliest",
                "share.renew.acknowledge.enable": "true",
                "share.isolation.level": "read_committed",
                "share.delivery.count.limit": "10",
            },
            frozenset(
                {
                    "share.renew.acknowledge.enable",
                    "share.isolation.level",
                    "share.delivery.count.limit",
                }
            ),
        ),
    )


def test_handled_topic_without_a_declaration_is_not_changed() -> None:
    topic = next(topic for topic in wanted([route()]).topics if topic.name == "orders")
    assert (topic.partitions, topic.configs) == (None, {})
    assert between(topic, ExistingTopic(7, {})) == []


def test_declared_topic_requires_its_partitions_and_settings() -> None:
    declared = TopicDeclaration("orders", 12, {"retention.ms": "5"})
    topic = next(topic for topic in wanted([route()], [declared]).topics if topic.name == "orders")
    assert topic == RequiredTopic(
        "orders", "declared, handled by billing", 12, {"retention.ms": "5"}
    )


def test_a_topic_that_is_declared_in_two_ways_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"retention.ms=5 .declared. and retention.ms=6"):
        wanted(
            [],
            [
                TopicDeclaration("a", 1, {"retention.ms": "5"}),
                TopicDeclaration("a", 1, {"retention.ms": "6"}),
            ],
        )


def test_the_brokers_dead_letters_are_settings_of_group_and_topic() -> None:
    found = wanted([route(dead_letter=BrokerDeadLetter("orders.dead"))])
    dead = next(topic for topic in found.topics if topic.name == "orders.dead")
    assert dead.configs == {"errors.deadletterqueue.group.enable": "true"}
    assert found.groups[0].configs == {
        "share.auto.offset.reset": "earliest",
        "share.renew.acknowledge.enable": "true",
        "share.isolation.level": "read_committed",
        "share.delivery.count.limit": "10",
        "errors.deadletterqueue.topic.name": "orders.dead",
        "errors.deadletterqueue.copy.record.enable": "true",
    }


def test_group_settings_of_a_route_override_the_implied_ones() -> None:
    settings = {"share.renew.acknowledge.enable": "false", "share.delivery.count.limit": "9"}
    found = wanted([route(group_configs=settings)])
    assert found.groups == (
        RequiredGroup(
            "billing",
            {
                "share.auto.offset.reset": "earliest",
                "share.isolation.level": "read_committed",
                **settings,
            },
            frozenset({"share.isolation.level"}),
        ),
    )


def test_routes_of_one_group_that_disagree_are_refused() -> None:
    other = route(topics=("refunds",), shape=shape_of(refund), start_from="latest")
    with pytest.raises(
        InvalidConfig, match=r"'billing'.*share.auto.offset.reset as 'earliest'.*refund.*'latest'"
    ):
        wanted([route(), other])


def test_a_topic_that_two_groups_bury_in_is_wanted_once() -> None:
    dead = DeadLetter("the.dead", partitions=2)
    found = wanted(
        [
            route(dead_letter=dead, retry=None),
            route(group="refunding", dead_letter=DeadLetter("the.dead", partitions=3)),
        ]
    )
    shared = [topic for topic in found.topics if topic.name == "the.dead"]
    assert [(topic.partitions, topic.purpose) for topic in shared] == [
        (3, "dead letters of billing, dead letters of refunding")
    ]


def test_one_topic_with_two_retentions_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"'the.dead'.*retention.ms"):
        wanted(
            [
                route(dead_letter=DeadLetter("the.dead", retention="1d")),
                route(group="refunding", dead_letter=DeadLetter("the.dead", retention="2d")),
            ]
        )


def test_a_missing_topic_is_missing() -> None:
    topic = RequiredTopic("billing.dead", "dead letters of billing", 2, {"retention.ms": "5"})
    assert between(topic) == [
        Change(
            ChangeKind.MISSING,
            "topic",
            "billing.dead",
            wanted="2",
            why="dead letters of billing; replicas: 1, min.insync.replicas: 1",
            topic=replace(
                topic,
                configs={"retention.ms": "5", "min.insync.replicas": "1"},
                replication=Replication(1),
            ),
        )
    ]


def test_partitions_can_be_added_and_not_taken_away() -> None:
    topic = RequiredTopic("dead", "dead letters", 2)
    grown = between(topic, ExistingTopic(1, {}))
    assert [(change.kind, change.setting, change.now, change.wanted) for change in grown] == [
        (ChangeKind.DRIFT, "partitions", "1", "2")
    ]
    shrunk = between(topic, ExistingTopic(3, {}))
    assert [(change.kind, change.now, change.wanted) for change in shrunk] == [
        (ChangeKind.REFUSED, "3", "2")
    ]
    assert "cannot be removed" in str(shrunk[0])


def test_more_partitions_than_required_are_accepted_if_not_declared() -> None:
    topic = RequiredTopic("billing.retry", "retries", 2, more_is_fine=True)
    assert between(topic, ExistingTopic(3, {})) == []
    assert [change.kind for change in between(topic, ExistingTopic(1, {}))] == [ChangeKind.DRIFT]


def test_a_topics_setting_that_differs_is_drift() -> None:
    topic = RequiredTopic("dead", "dead letters", 1, {"retention.ms": "5", "cleanup.policy": "x"})
    found = between(topic, ExistingTopic(1, entries(retention_ms="7", cleanup_policy="x")))
    assert [(change.kind, change.setting, change.now, change.wanted) for change in found] == [
        (ChangeKind.DRIFT, "retention.ms", "7", "5")
    ]


def test_unknown_topic_setting_is_refused() -> None:
    topic = RequiredTopic(
        "dead", "dead letters", 1, {"errors.deadletterqueue.group.enable": "true"}
    )
    assert [change.kind for change in between(topic, ExistingTopic(1, {}))] == [ChangeKind.REFUSED]


@pytest.mark.parametrize(
    ("source", "kind"),
    [(ConfigSource.DEFAULT, ChangeKind.MISSING), (ConfigSource.GROUP, ChangeKind.DRIFT)],
)
def test_group_setting_is_missing_until_it_is_set_explicitly(
    source: ConfigSource, kind: ChangeKind
) -> None:
    name = "share.auto.offset.reset"
    group = RequiredGroup("billing", {name: "earliest"})
    found = between(group=group, settings=group_entry(name, "latest", source))
    assert [(change.kind, change.now, change.wanted) for change in found] == [
        (kind, "latest", "earliest")
    ]
    assert between(group=group, settings=group_entry(name, "earliest", source)) == []


def test_unknown_implied_group_setting_is_ignored() -> None:
    name = "share.renew.acknowledge.enable"
    assert between(group=RequiredGroup("g", {name: "true"}, frozenset({name}))) == []
    assert [change.kind for change in between(group=RequiredGroup("g", {name: "true"}))] == [
        ChangeKind.REFUSED
    ]


def test_only_topics_with_names_of_the_worker_are_owned() -> None:
    names = [
        "billing.dead", "billing.retry", "billing.retry.5s", "billing.retry.1h30m",
        "billing.retry.due", "billing.retry.1s500ms",
        "billing", "billing.deadline", "billing.retry.archive", "billing.retry.5", "orders",
        "rebilling.retry", "billing.retry.5s.old",
    ]  # fmt: skip
    assert list(owned_names(["billing"], names)) == names[:6]


def test_owned_topic_that_is_not_required_is_surplus_with_its_record_count() -> None:
    found = changes(
        RequiredInfrastructure((), ()),
        ExistingInfrastructure({"billing.retry.5s": ExistingTopic(2, {}, 1207)}, {}),
    )
    assert [(change.kind, change.name, change.why) for change in found] == [
        (ChangeKind.SURPLUS, "billing.retry.5s", "holds 1,207 records")
    ]
