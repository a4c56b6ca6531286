"""The catalog: replayed from events, names and settings checked before anything happens."""

from __future__ import annotations

from uuid import UUID

import pytest

from sharegroup.broker.cluster.catalog import Catalog, decode_event, encode_event
from sharegroup.errors import (
    InvalidConfig,
    InvalidTopic,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sharegroup.ids import GroupId, TopicId, TopicName

FIRST = TopicId(UUID(int=1))
SECOND = TopicId(UUID(int=2))


def with_topic(name: str = "orders") -> Catalog:
    catalog = Catalog()
    catalog.replay({"event": "cluster", "id": "c1"})
    catalog.replay(
        catalog.create_topic(
            TopicName(name), FIRST, partitions=3, settings={"max.message.bytes": "5000"}
        )
    )
    return catalog


def test_topic_is_found_by_name_and_by_id() -> None:
    catalog = with_topic()
    topic = catalog.topic(TopicName("orders"))
    assert (topic.partition_count, topic.config.message_bytes_max) == (3, 5000)
    assert catalog.by_id(FIRST) == topic


def test_command_changes_nothing_until_its_event_is_replayed() -> None:
    catalog = Catalog()
    catalog.create_topic(TopicName("orders"), FIRST, partitions=1, settings={})
    assert catalog.find(TopicName("orders")) is None


def test_deleted_topic_is_unknown_and_its_name_is_free_again() -> None:
    catalog = with_topic()
    catalog.replay({"event": "topic_deleted", "id": FIRST.hex})
    with pytest.raises(UnknownTopicOrPartition, match="'orders'"):
        catalog.topic(TopicName("orders"))
    catalog.replay(catalog.create_topic(TopicName("orders"), SECOND, partitions=1, settings={}))
    assert catalog.by_id(FIRST) is None
    assert catalog.by_id(SECOND) is not None


def test_shortest_history_gives_the_same_catalog() -> None:
    catalog = with_topic()
    catalog.replay({"event": "partitions_added", "name": "orders", "partitions": 7})
    catalog.replay({"event": "producer_ids", "end": 1000})
    catalog.replay(
        {
            "event": "group_settings",
            "group": "g",
            "settings": {"share.isolation.level": "read_uncommitted"},
        }
    )
    again = Catalog()
    for event in catalog.events():
        again.replay(decode_event(encode_event(event)))
    assert list(again.events()) == list(catalog.events())
    assert again.topic(TopicName("orders")).partition_count == 7
    assert again.group_settings(GroupId("g")) == {"share.isolation.level": "read_uncommitted"}
    assert again.producer_ids_end == 1000


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250, "a\0"])
def test_name_that_could_not_be_a_topic_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopic):
        Catalog().create_topic(TopicName(name), FIRST, partitions=1, settings={})


def test_second_topic_of_a_name_is_refused() -> None:
    with pytest.raises(TopicAlreadyExists, match="'orders'"):
        with_topic().create_topic(TopicName("orders"), SECOND, partitions=1, settings={})


def test_names_that_differ_in_dot_and_underscore_only_are_refused() -> None:
    with pytest.raises(InvalidTopic, match="'a_b' differs from an existing topic") as caught:
        with_topic("a.b").create_topic(TopicName("a_b"), SECOND, partitions=1, settings={})
    assert "a.b" not in str(caught.value), "the client may not be allowed to know it"


def test_unknown_and_wrong_settings_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"no\.such\.key"):
        Catalog().create_topic(TopicName("t"), FIRST, partitions=1, settings={"no.such.key": "1"})
    with pytest.raises(InvalidConfig, match=r"max\.message\.bytes must be at least 0, not -1"):
        Catalog().create_topic(
            TopicName("t"), FIRST, partitions=1, settings={"max.message.bytes": "-1"}
        )


@pytest.mark.parametrize(
    "payload",
    [
        b'{"event":"teleported"}',
        b'{"event":"acls_created","acls":[[2,3,"t","User:a","*",99,3]]}',
        b'{"event":"acls_created","acls":[["secret"]]}',
        b'{"event":"client_quotas","entity":{"planet":"secret"},"limits":{}}',
        b'{"event":"scram_credentials","upserted":[{"user":"secret"}]}',
        b'["event"]',
        b"{",
    ],
)
def test_event_of_a_newer_version_ends_the_start_with_an_error(payload: bytes) -> None:
    known = encode_event({"event": "cluster", "id": "c"})
    with pytest.raises(KafkaStorageError, match=r"event 1 of the catalog.*newer version"):
        Catalog().load([known, payload])
