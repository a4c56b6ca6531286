"""Client instances: intervals, changed subscriptions, refused pushes."""

from __future__ import annotations

from uuid import UUID

import pytest

from sharegroup.core.client_telemetry.client_instances import ClientInstances, Push
from sharegroup.core.client_telemetry.subscriptions import (
    ClientIdentity,
    RequestedMetrics,
    Subscription,
    parse_match,
    requested_metrics,
)
from sharegroup.core.security.principal import Principal
from sharegroup.errors import (
    InvalidConfig,
    InvalidRequest,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)

ID = UUID(int=42)
REQUESTED = RequestedMetrics(("*",), 1_000)


def instances() -> ClientInstances:
    known = ClientInstances(instances_max=2)
    known.put(ID, REQUESTED, 7, 1)
    return known


def push(
    known: ClientInstances,
    now_ms: int,
    *,
    subscription_id: int = 7,
    codec: int = 4,
    size: int = 10,
    ends: bool = False,
) -> None:
    known.check_push(ID, Push(subscription_id, codec, ends, size), now_ms=now_ms, bytes_max=100)


def test_client_asks_once_in_an_interval() -> None:
    known = instances()
    assert known.subscription_of(ID, now_ms=0) == (7, REQUESTED)
    with pytest.raises(ThrottlingQuotaExceeded, match="once in 1000 ms"):
        known.subscription_of(ID, now_ms=999)
    assert known.subscription_of(ID, now_ms=1_000) == (7, REQUESTED)
    assert known.throttled_count == 1


def test_first_push_is_never_early_and_the_next_one_waits() -> None:
    known = instances()
    known.subscription_of(ID, now_ms=0)
    push(known, 1)
    with pytest.raises(ThrottlingQuotaExceeded):
        push(known, 1_000)
    push(known, 1_001)


def test_last_push_may_be_early_and_nothing_follows_it() -> None:
    known = instances()
    known.subscription_of(ID, now_ms=0)
    push(known, 1)
    push(known, 2, ends=True)
    with pytest.raises(InvalidRequest, match="announced its end"):
        push(known, 5_000)


def test_client_with_an_old_subscription_asks_again_at_once() -> None:
    known = instances()
    known.subscription_of(ID, now_ms=0)
    with pytest.raises(UnknownSubscriptionId, match="is 7, not 8"):
        push(known, 1, subscription_id=8)
    assert known.unknown_count == 1
    assert known.subscription_of(ID, now_ms=2) == (7, REQUESTED)


def test_push_with_an_unknown_codec_or_too_many_bytes_is_refused() -> None:
    known = instances()
    known.subscription_of(ID, now_ms=0)
    with pytest.raises(UnsupportedCompressionType, match="type 9"):
        push(known, 1, codec=9)
    known.subscription_of(ID, now_ms=1_001)
    with pytest.raises(TelemetryTooLarge, match="101 bytes"):
        push(known, 1_002, size=101)


def test_instance_that_was_silent_for_longest_is_forgotten() -> None:
    known = instances()
    known.put(UUID(int=2), REQUESTED, 1, 1)
    known.subscription_of(ID, now_ms=0)
    known.put(UUID(int=3), REQUESTED, 1, 1)
    assert len(known) == 2
    assert known.knows(ID, 1)
    assert not known.knows(UUID(int=2), 1)
    assert not known.knows(ID, 2), "the settings have another version"


CLIENT = ClientIdentity("id", "orders-1", "apache-kafka-java", "4.4.0", "10.0.0.7", "50123")


def subscription(metrics: str, interval_ms: int, *match: str) -> Subscription:
    return Subscription("any", tuple(metrics.split(",")), interval_ms, parse_match(match))


def test_client_gets_the_metrics_of_all_subscriptions_that_select_it() -> None:
    every = (
        subscription("a.,b.", 5_000, "client_id=orders-.*", r"client_software_version=4\..*"),
        subscription("b.,c.", 2_000),
        subscription("d.", 100, "client_id=billing"),
        subscription("e.", 100, "client_id=orders-.*", "client_source_address=127.*"),
    )
    assert requested_metrics(every, CLIENT) == RequestedMetrics(("a.", "b.", "c."), 2_000)


def test_all_metrics_include_every_prefix() -> None:
    every = (subscription("a.", 5_000), subscription("*", 400_000))
    assert requested_metrics(every, CLIENT) == RequestedMetrics(("*",), 5_000)
    assert requested_metrics((), CLIENT) == RequestedMetrics((), 300_000)


@pytest.mark.parametrize("selector", ["client_id", "client_id=", "color=red", "=a", "client_id=("])
def test_selectors_of_another_form_are_refused(selector: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_match([selector])


def test_a_client_without_a_subscription_pushes_nothing() -> None:
    known = ClientInstances()
    known.put(ID, RequestedMetrics((), 1_000), 7, 1)
    known.subscription_of(ID, now_ms=0)
    with pytest.raises(UnknownSubscriptionId, match="no subscription selects"):
        push(known, 1)
    with pytest.raises(UnknownSubscriptionId, match="no subscription selects"):
        push(known, 2_000, size=0)
    assert known.unknown_count == 2
    assert known.subscription_of(ID, now_ms=2_001) == (7, RequestedMetrics((), 1_000))


def test_one_user_has_a_part_of_the_instances() -> None:
    eve, bob = Principal("User", "eve"), Principal("User", "bob")
    known = ClientInstances(instances_max=10, user_percent=50)
    for number in range(4):
        known.put(UUID(int=100 + number), REQUESTED, 1, 1, bob)
    for number in range(1_000):
        known.put(UUID(int=1_000 + number), REQUESTED, 1, 1, eve)
    assert len(known) == 9
    assert all(known.knows(UUID(int=100 + number), 1) for number in range(4))
    assert all(known.knows(UUID(int=1_995 + number), 1) for number in range(5))
    known.put(UUID(int=1_999), REQUESTED, 1, 2, eve)
    assert known.knows(UUID(int=1_995), 1), "another subscription is no other instance"
    for number in range(4):
        known.forget(UUID(int=100 + number))
        known.forget(UUID(int=100 + number))
    for number in range(9):
        known.put(UUID(int=200 + number), REQUESTED, 1, 1)
    assert len(known) == 10
    assert known.knows(UUID(int=200), 1), "a user without limits has no part"
