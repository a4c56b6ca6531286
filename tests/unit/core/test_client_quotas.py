"""Client quotas: which limit applies to a client, which changes are valid, and what a filter finds.

The precedence of Kafka's ClientQuotaManager is written out as a table.
"""

from __future__ import annotations

import pytest

from sharegroup.core.quotas.entities import (
    ANY,
    DEFAULT_NAME,
    EXACT,
    ClientQuotas,
    Entity,
    Limit,
    QuotaKey,
    entity,
    is_match,
    parse_entity,
    parse_filter,
)
from sharegroup.errors import InvalidRequest, PolicyViolation, UnsupportedVersion

ENTITIES_MAX = 8

RATE = QuotaKey.PRODUCER_BYTE_RATE

BY_PRECEDENCE = (
    (entity(user="alice", client_id="etl"), "alice", "etl"),
    (entity(user="alice", client_id=None), "alice", "etl"),
    (entity(user="alice"), "alice", ""),
    (entity(user=None, client_id="etl"), "alice", "etl"),
    (entity(user=None, client_id=None), "alice", "etl"),
    (entity(user=None), "alice", ""),
    (entity(client_id="etl"), "", "etl"),
    (entity(client_id=None), "", "etl"),
)
"""The entities that apply to alice's client etl, the strongest first, and who shares the limit."""


def put(quotas: ClientQuotas, altered: Entity, **changes: float | None) -> None:
    event = quotas.check(altered, changes.items(), entities_max=ENTITIES_MAX)
    assert event is not None, "the change changes something"
    quotas.replay(event)


@pytest.mark.parametrize("first", range(len(BY_PRECEDENCE)))
def test_most_specific_entity_applies(first: int) -> None:
    quotas = ClientQuotas()
    for number, (altered, _, _) in enumerate(BY_PRECEDENCE):
        if number >= first:
            put(quotas, altered, producer_byte_rate=1000 + number)
    _, user, client_id = BY_PRECEDENCE[first]
    assert quotas.limit_of(RATE, "alice", "etl") == Limit(1000 + first, user, client_id)


def test_entity_without_the_key_does_not_hide_a_weaker_one() -> None:
    quotas = ClientQuotas()
    put(quotas, entity(user="alice"), consumer_byte_rate=5)
    put(quotas, entity(client_id=None), producer_byte_rate=7)
    assert quotas.limit_of(RATE, "alice", "etl") == Limit(7, "", "etl")
    assert quotas.limit_of(QuotaKey.CONSUMER_BYTE_RATE, "alice", "etl") == Limit(5, "alice", "")
    assert quotas.limit_of(QuotaKey.REQUEST_PERCENTAGE, "alice", "etl") is None


def test_client_without_a_client_id_has_the_default_limit() -> None:
    quotas = ClientQuotas()
    put(quotas, entity(user="alice"), producer_byte_rate=1)
    put(quotas, entity(user="alice", client_id=None), producer_byte_rate=2)
    assert quotas.limit_of(RATE, "alice", "") == Limit(2, "alice", "")


def test_limits_of_others_do_not_apply() -> None:
    quotas = ClientQuotas()
    put(quotas, entity(user="bob"), producer_byte_rate=1)
    put(quotas, entity(user="bob", client_id="etl"), producer_byte_rate=1)
    put(quotas, entity(client_id="other"), producer_byte_rate=1)
    assert quotas.limit_of(RATE, "alice", "etl") is None


def test_address_has_its_own_limit_or_the_default() -> None:
    quotas = ClientQuotas()
    assert quotas.address_limit("10.0.0.1") is None
    put(quotas, entity(address=None), connection_creation_rate=9)
    put(quotas, entity(address="10.0.0.1"), connection_creation_rate=3)
    assert (quotas.address_limit("10.0.0.1"), quotas.address_limit("10.0.0.2")) == (3, 9)
    assert quotas.address_limit("::ffff:10.0.0.1") == 3


def test_address_has_many_spellings() -> None:
    quotas = ClientQuotas()
    put(quotas, entity(address="2001:DB8:0::1"), connection_creation_rate=3)
    assert quotas.address_limit("2001:db8::1") == 3
    put(quotas, entity(address="2001:DB8:0::1"), connection_creation_rate=None)
    assert quotas.address_limit("2001:db8::1") is None


def test_removed_limit_leaves_the_others_and_an_empty_entity_goes() -> None:
    quotas = ClientQuotas()
    put(quotas, entity(user="alice"), producer_byte_rate=1, consumer_byte_rate=2)
    put(quotas, entity(user="alice"), producer_byte_rate=None)
    assert quotas.limits(entity(user="alice")) == {"consumer_byte_rate": 2}
    assert quotas.in_use == {QuotaKey.CONSUMER_BYTE_RATE}
    put(quotas, entity(user="alice"), consumer_byte_rate=None)
    assert (len(quotas), quotas.limit_count, quotas.memory_bytes, quotas.in_use) == (
        0, 0, 0, frozenset(),
    )  # fmt: skip


def test_change_without_an_effect_makes_no_event() -> None:
    quotas = ClientQuotas()
    put(quotas, entity(user="alice"), producer_byte_rate=1)
    for changes in ({"producer_byte_rate": 1.0}, {"consumer_byte_rate": None}, {"unknown": None}):
        assert not quotas.check(entity(user="alice"), changes.items(), entities_max=ENTITIES_MAX)


@pytest.mark.parametrize(
    ("altered", "changes", "reason"),
    [
        (entity(user="a"), [("producer_byte_rate", 0.0)], "greater than 0"),
        (entity(user="a"), [("producer_byte_rate", -1.0)], "greater than 0"),
        (entity(user="a"), [("request_percentage", float("nan"))], "greater than 0"),
        (entity(user="a"), [("producer_byte_rate", 1.5)], "whole number"),
        (entity(user="a"), [("producer_byte_rate", 1e19)], "at most"),
        (entity(user="a"), [("bananas", 1.0)], "no key 'bananas'"),
        (entity(user="a"), [("connection_creation_rate", 1.0)], "no key"),
        (entity(address="10.0.0.1"), [("producer_byte_rate", 1.0)], "no key"),
        (entity(address="10.0.0.1"), [("connection_creation_rate", 2.0**31)], "at most"),
        (entity(address="bad"), [("connection_creation_rate", 1.0)], "not an IP address"),
        (entity(address="10.0.0.1", user="a"), [], "cannot have a user"),
        (entity(), [], "no user, client id or ip"),
        (parse_entity([("user", "")]), [], "empty name"),
        (entity(user="a"), [("producer_byte_rate", 1.0)] * 2, "occurs twice"),
        (entity(user="a" * 32_768), [("producer_byte_rate", 1.0)], "more than 32767"),
    ],
)
def test_invalid_change_is_refused(
    altered: Entity, changes: list[tuple[str, float | None]], reason: str
) -> None:
    quotas = ClientQuotas()
    with pytest.raises(InvalidRequest, match=reason):
        quotas.check(altered, changes, entities_max=ENTITIES_MAX)
    assert len(quotas) == 0


def test_fractions_are_valid_where_kafka_has_doubles() -> None:
    quotas = ClientQuotas()
    put(quotas, entity(user="a"), request_percentage=0.5, controller_mutation_rate=1.5)
    assert quotas.limits(entity(user="a")) == {
        "request_percentage": 0.5, "controller_mutation_rate": 1.5,
    }  # fmt: skip


def test_number_of_entities_is_limited() -> None:
    quotas = ClientQuotas()
    for number in range(8):
        put(quotas, entity(user=f"user-{number}"), producer_byte_rate=1)
    with pytest.raises(PolicyViolation, match=r"quota\.entities\.max is 8"):
        put(quotas, entity(user="c"), producer_byte_rate=1)
    put(quotas, entity(user="user-3"), producer_byte_rate=2)  # No new entity.


def test_events_restore_the_limits() -> None:
    quotas, restored = ClientQuotas(), ClientQuotas()
    put(quotas, entity(user="a", client_id=None), producer_byte_rate=1, request_percentage=2.5)
    put(quotas, entity(address=None), connection_creation_rate=3)
    for event in quotas.events():
        restored.replay(event)
    assert restored.entities() == quotas.entities()
    assert [restored.limits(e) for e in restored.entities()] == [
        {"producer_byte_rate": 1, "request_percentage": 2.5}, {"connection_creation_rate": 3},
    ]  # fmt: skip


ALICE, ALICE_ETL, EVERYONE, ETL = (
    entity(user="alice"),
    entity(user="alice", client_id="etl"),
    entity(user=None),
    entity(client_id="etl"),
)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, {ALICE, ALICE_ETL, EVERYONE, ETL}),
        ([], True, set()),
        ([("user", EXACT, "alice")], False, {ALICE, ALICE_ETL}),
        ([("user", EXACT, "alice")], True, {ALICE}),
        ([("user", DEFAULT_NAME, None)], False, {EVERYONE}),
        ([("user", ANY, None)], False, {ALICE, ALICE_ETL, EVERYONE}),
        ([("user", ANY, None)], True, {ALICE, EVERYONE}),
        ([("user", EXACT, "alice"), ("client-id", ANY, None)], True, {ALICE_ETL}),
        ([("client-id", EXACT, "etl")], False, {ALICE_ETL, ETL}),
        ([("ip", ANY, None)], False, set()),
    ],
)
def test_filter_finds(
    components: list[tuple[str, int, str | None]], strict: bool, found: set[Entity]
) -> None:
    wanted = parse_filter(components)
    every = (ALICE, ALICE_ETL, EVERYONE, ETL)
    assert {e for e in every if is_match(e, wanted, strict=strict)} == found


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", EXACT, "a")], InvalidRequest),
        ([("user", EXACT, "a"), ("user", ANY, None)], InvalidRequest),
        ([("group", EXACT, "a")], UnsupportedVersion),
        ([("user", EXACT, None)], InvalidRequest),
        ([("user", DEFAULT_NAME, "a")], InvalidRequest),
        ([("user", ANY, "a")], InvalidRequest),
        ([("user", 3, None)], InvalidRequest),
        ([("ip", ANY, None), ("user", ANY, None)], InvalidRequest),
    ],
)
def test_invalid_filter_is_refused(
    components: list[tuple[str, int, str | None]], error: type[Exception]
) -> None:
    with pytest.raises(error):
        parse_filter(components)


def test_unknown_type_of_entity_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'group' is not known"):
        parse_entity([("group", "a")])
