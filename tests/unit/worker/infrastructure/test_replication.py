"""How many replicas the topics of a worker get, and what is said of those that have fewer."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.client.admin.types import ConfigEntry
from sharegroup.errors import InvalidConfig, KafkaError, TopicAuthorizationFailed
from sharegroup.protocol_enums import ConfigSource
from sharegroup.worker import App, DeadLetter, Retry
from sharegroup.worker.declarations.topics import NOT_DECLARED, Replication
from sharegroup.worker.infrastructure.changes import (
    Change,
    ChangeKind,
    ExistingInfrastructure,
    ExistingTopic,
    changes,
)
from sharegroup.worker.infrastructure.wanted import RequiredInfrastructure, RequiredTopic, wanted

MIN_INSYNC = "min.insync.replicas"
UNSEEN = TopicAuthorizationFailed("topic 'dead': (User:ann needs DESCRIBE_CONFIGS on topic 'dead')")


def entry(value: str) -> dict[str, ConfigEntry]:
    return {MIN_INSYNC: ConfigEntry(MIN_INSYNC, value, ConfigSource.TOPIC, False, False)}


def topic(factor: int | None = None, insync: int | None = None, **more: Any) -> RequiredTopic:
    return RequiredTopic("dead", "dead letters", 1, replication=Replication(factor, insync), **more)


def compared(
    declared: RequiredTopic,
    *,
    brokers: int,
    replicas: int | None = None,
    insync: str = "1",
    configs: KafkaError | None = None,
) -> list[Change]:
    there = None if replicas is None else ExistingTopic(1, configs or entry(insync), None, replicas)
    found = ExistingInfrastructure({"dead": there} if there else {}, {}, brokers)
    return changes(RequiredInfrastructure((declared,), ()), found)


@pytest.mark.parametrize(
    ("factor", "insync", "brokers", "expected"),
    [
        (None, None, 1, (1, "1")),
        (None, None, 2, (2, "1")),
        (None, None, 3, (3, "2")),
        (None, None, 9, (3, "2")),
        (5, None, 9, (5, "4")),
        (1, None, 3, (1, "1")),
        (None, 3, 3, (3, "3")),
        (None, 1, 3, (3, "1")),
        # One application on a machine of one broker and on a cluster.
        (None, 2, 1, (1, "1")),
    ],
)
def test_new_topic_has_three_replicas_or_as_many_as_brokers(
    factor: int | None, insync: int | None, brokers: int, expected: tuple[int, str]
) -> None:
    (change,) = compared(topic(factor, insync), brokers=brokers)
    assert change.topic is not None
    made = change.topic
    assert (made.replication.replication_factor, made.configs[MIN_INSYNC]) == expected
    assert f"replicas: {expected[0]}, {MIN_INSYNC}: {expected[1]}" in str(change)


def test_more_replicas_than_brokers_are_refused_with_both_numbers() -> None:
    (change,) = compared(topic(3), brokers=2)
    assert change.is_impossible
    assert change.topic is None, "nothing to create"
    assert str(change) == (
        "topic dead replication_factor: refused (None; declared: 3), the cluster has 2 brokers; "
        "declare a replication_factor of 2 or less, or none"
    )


def test_fewer_replicas_than_the_cluster_allows_are_a_warning() -> None:
    found = compared(topic(), brokers=3, replicas=1)
    assert [(change.kind, change.setting, change.now, change.wanted) for change in found] == [
        (ChangeKind.WARNING, "replication_factor", "1", "3")
    ]
    assert "kafka-reassign-partitions" in found[0].why


def test_fewer_replicas_than_declared_are_refused_and_more_are_fine() -> None:
    (change,) = compared(topic(3), brokers=3, replicas=2)
    assert (change.kind, change.now, change.wanted) == (ChangeKind.REFUSED, "2", "3")
    assert not change.is_impossible
    assert compared(topic(2), brokers=3, replicas=3, insync="2") == []


@pytest.mark.parametrize(("insync", "kind"), [(None, ChangeKind.WARNING), (2, ChangeKind.DRIFT)])
def test_too_small_min_insync_replicas_is_corrected_if_declared(
    insync: int | None, kind: ChangeKind
) -> None:
    found = compared(topic(None, insync), brokers=3, replicas=3, insync="1")
    assert [(change.kind, change.setting, change.now, change.wanted) for change in found] == [
        (kind, MIN_INSYNC, "1", "2")
    ]
    assert compared(topic(None, insync), brokers=3, replicas=3, insync="3") == []


def test_a_min_isr_above_a_topics_replicas_is_never_wanted() -> None:
    """A topic with one replica that needed two in sync would take no record."""
    found = compared(topic(None, 2), brokers=3, replicas=1, insync="1")
    assert [change.setting for change in found] == ["replication_factor"]


def test_min_insync_replicas_in_the_topic_settings_is_compared_like_them() -> None:
    declared = topic(configs={MIN_INSYNC: "1"})
    assert compared(declared, brokers=3, replicas=3, insync="1") == []
    (change,) = compared(declared, brokers=3)
    assert change.topic is not None
    assert change.topic.configs == {MIN_INSYNC: "1"}


def test_replicas_of_foreign_topics_are_not_compared() -> None:
    assert compared(topic(is_ours=False), brokers=3, replicas=1) == []


def test_settings_that_may_not_be_seen_are_unknown_and_replicas_are_compared() -> None:
    found = compared(topic(), brokers=3, replicas=1, configs=UNSEEN)
    assert [change.kind for change in found] == [ChangeKind.WARNING, ChangeKind.UNKNOWN]
    assert found[1].why == str(UNSEEN)
    assert compared(topic(is_ours=False), brokers=3, replicas=1, configs=UNSEEN) == []


def test_each_declaration_is_about_its_topics_and_the_app_about_all_others() -> None:
    app = App("orders-service", replication_factor=5, min_insync_replicas=4)
    app.topic("audit", replication_factor=2)

    @app.share_group(
        "billing",
        topics="orders",
        retry=Retry(replication_factor=3),
        dead_letter=DeadLetter(min_insync_replicas=1),
    )
    async def bill(order: bytes) -> None: ...

    needed = wanted(app.route_list, app.topic_list, app.replication).topics
    assert {
        required.name: tuple(required.replication)
        for required in needed
        if required.name[-1] not in "mhs"
    } == {
        "audit": (2, 4),
        "billing.dead": (5, 1),
        "billing.retry": (3, 4),
        "billing.retry.due": (3, 4),
    }
    assert [tuple(required.replication) for required in needed if required.name == "orders"] == [
        (5, 4)
    ]


def test_topic_of_two_groups_has_the_stricter_replication_of_both() -> None:
    app = App("orders-service")

    @app.share_group("billing", topics="a", dead_letter=DeadLetter("dead", replication_factor=2))
    async def bill(order: bytes) -> None: ...

    @app.share_group("mailing", topics="a", dead_letter=DeadLetter("dead", min_insync_replicas=2))
    async def mail(order: bytes) -> None: ...

    (dead,) = (required for required in wanted(app.route_list).topics if required.name == "dead")
    assert dead.replication == Replication(2, 2)
    assert NOT_DECLARED.both(NOT_DECLARED) == NOT_DECLARED


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"replication_factor": 0}, "replication_factor=0; expected 1 or more"),
        ({"replication_factor": True}, "replication_factor=True; expected 1 or more"),
        ({"min_insync_replicas": "2"}, "min_insync_replicas='2'; expected 1 or more"),
        (
            {"replication_factor": 2, "min_insync_replicas": 3},
            "min_insync_replicas=3 is above replication_factor=2; expected at most 2",
        ),
    ],
)
def test_invalid_replication_numbers_are_refused_in_every_declaration(
    options: dict[str, Any], text: str
) -> None:
    for declare, whose in (
        (Retry, "Retry"),
        (DeadLetter, "DeadLetter"),
        (lambda **some: App("a", **some), "App 'a'"),
        (lambda **some: App("a").topic("t", **some), "topic 't'"),
    ):
        with pytest.raises(InvalidConfig) as refused:
            declare(**options)
        assert str(refused.value).startswith(f"{whose}: {text}")


def test_a_min_isr_that_is_declared_twice_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"min_insync_replicas=2 and 'min.insync.replicas'"):
        App("a").topic("t", min_insync_replicas=2, configs={MIN_INSYNC: "1"})
