"""Settings of groups, topics and the broker (docs/spec.md, «config»)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_configs.v2 import request as replace_configs
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.list_config_resources.v1 import request as list_config_resources

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.spec.administration import delete_groups
from tests.spec.peer import start_ours
from tests.spec.scene import ALTER_DELETE, BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, Scene
from tests.spec.waiting import wait_for

INVALID_CONFIG, INVALID_REQUEST, TOO_LARGE = 40, 42, 10
ALTER_APPEND, ALTER_SUBTRACT = 2, 3
DYNAMIC_BROKER, STATIC_BROKER, DEFAULT, DYNAMIC_GROUP = 2, 4, 5, 8
BOOLEAN, STRING, INT = 1, 2, 3

GROUP_DEFAULTS = {
    "share.session.timeout.ms": "45000",
    "share.heartbeat.interval.ms": "5000",
    "share.record.lock.duration.ms": "30000",
    "share.auto.offset.reset": "latest",
    "share.isolation.level": "read_uncommitted",
    "share.delivery.count.limit": "5",
    "share.partition.max.record.locks": "2000",
    "share.renew.acknowledge.enable": "true",
    "share.assignment.interval.ms": "0",
    "errors.deadletterqueue.topic.name": "",
    "errors.deadletterqueue.copy.record.enable": "false",
}
"""As Apache Kafka 4.4 has them, but for the interval, which this broker was started with."""

BROKER_DEFAULTS = {
    "group.share.session.timeout.ms": "45000",
    "group.share.max.session.timeout.ms": "60000",
    "group.share.heartbeat.interval.ms": "5000",
    "group.share.max.heartbeat.interval.ms": "15000",
    "group.share.assignors": "simple",
    "group.share.min.assignment.interval.ms": "0",
    "group.share.max.assignment.interval.ms": "15000",
    "group.share.delivery.count.limit": "5",
    "group.share.min.delivery.count.limit": "2",
    "group.share.max.delivery.count.limit": "10",
    "group.share.record.lock.duration.ms": "30000",
    "group.share.max.record.lock.duration.ms": "60000",
    "group.share.partition.max.record.locks": "2000",
    "group.share.min.partition.max.record.locks": "100",
    "share.fetch.purgatory.purge.interval.requests": "1000",
    "errors.deadletterqueue.auto.create.topics.enable": "false",
    "errors.deadletterqueue.topic.name.prefix": "dlq.",
    "share.coordinator.state.topic.num.partitions": "50",
    "share.coordinator.state.topic.segment.bytes": "104857600",
    "share.coordinator.state.topic.compression.codec": "0",
    "share.coordinator.threads": "1",
    "share.coordinator.write.timeout.ms": "5000",
    "share.coordinator.load.buffer.size": "5242880",
    "share.coordinator.append.linger.ms": "-1",
    "share.coordinator.cached.buffer.max.bytes": "1048588",
}


def by_name(answer: Any) -> dict[str, Any]:
    assert answer.error_code == 0, answer
    return {config.name: config for config in answer.configs}


def set_one(scene: Scene, group: str, key: str, value: str) -> Any:
    return scene.alter_configs(GROUP_RESOURCE, group, {key: value})


def test_config_1_group_has_all_settings_with_their_effective_values(scene: Scene) -> None:
    shown = scene.configs(GROUP_RESOURCE, scene.new_name("group"))
    assert {name: shown.get(name) for name in GROUP_DEFAULTS} == GROUP_DEFAULTS


def test_config_2_source_of_each_setting_is_reported(scene: Scene) -> None:
    """The interval is set for this broker, the reset policy for the group."""
    shown = by_name(scene.described_configs(GROUP_RESOURCE, scene.group()))
    assert shown["share.assignment.interval.ms"].config_source == STATIC_BROKER
    assert shown["share.auto.offset.reset"].config_source == DYNAMIC_GROUP
    assert shown["share.delivery.count.limit"].config_source == DEFAULT


def test_config_3_type_and_documentation_are_reported(scene: Scene) -> None:
    shown = by_name(scene.described_configs(GROUP_RESOURCE, scene.new_name("group")))
    types = {
        "share.delivery.count.limit": INT,
        "share.auto.offset.reset": STRING,
        "share.renew.acknowledge.enable": BOOLEAN,
    }
    assert {name: shown[name].config_type for name in types} == types
    for name in GROUP_DEFAULTS:
        assert shown[name].documentation, name
        assert not shown[name].read_only, name
        assert not shown[name].is_sensitive, name


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("share.session.timeout.ms", "499"),
        ("share.session.timeout.ms", "60001"),
        ("share.heartbeat.interval.ms", "99"),
        ("share.heartbeat.interval.ms", "15001"),
        ("share.record.lock.duration.ms", "999"),
        ("share.record.lock.duration.ms", "60001"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "99"),
        ("share.assignment.interval.ms", "-1"),
        ("share.assignment.interval.ms", "15001"),
        ("share.auto.offset.reset", "middle"),
        ("share.auto.offset.reset", "by_duration:yesterday"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.isolation.level", "serializable"),
        ("share.renew.acknowledge.enable", "perhaps"),
        ("share.delivery.count.limit", "many"),
        ("errors.deadletterqueue.topic.name", "__internal"),
        ("errors.deadletterqueue.copy.record.enable", "perhaps"),
        ("share.no.such.setting", "1"),
    ],
)
def test_config_4_error_for_a_value_out_of_range_names_the_setting(
    scene: Scene, key: str, value: str
) -> None:
    group = scene.new_name("group")
    before = scene.configs(GROUP_RESOURCE, group)
    answer = set_one(scene, group, key, value)
    assert answer.error_code == INVALID_CONFIG
    assert key in answer.error_message
    assert scene.configs(GROUP_RESOURCE, group) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("share.session.timeout.ms", "60000"),
        ("share.heartbeat.interval.ms", "100"),
        ("share.record.lock.duration.ms", "1000"),
        ("share.record.lock.duration.ms", "60000"),
        ("share.delivery.count.limit", "2"),
        ("share.delivery.count.limit", "10"),
        ("share.partition.max.record.locks", "100"),
        ("share.partition.max.record.locks", "4000"),
        ("share.assignment.interval.ms", "15000"),
        ("share.auto.offset.reset", "earliest"),
        ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S"),
        ("share.isolation.level", "read_committed"),
        ("share.renew.acknowledge.enable", "false"),
        ("errors.deadletterqueue.topic.name", "dlq.orders"),
        ("errors.deadletterqueue.copy.record.enable", "true"),
    ],
)
def test_config_5_every_value_in_range_is_taken(scene: Scene, key: str, value: str) -> None:
    scene.alter_group(scene.new_name("group"), **{key: value})


def test_config_6_session_timeout_is_longer_than_the_heartbeat_interval(scene: Scene) -> None:
    group = scene.new_name("group")
    answer = set_one(scene, group, "share.session.timeout.ms", "5000")
    assert answer.error_code == INVALID_CONFIG
    both = {"share.session.timeout.ms": "5000", "share.heartbeat.interval.ms": "4999"}
    assert scene.alter_configs(GROUP_RESOURCE, group, both).error_code == 0


def test_config_7_group_needs_a_name(scene: Scene) -> None:
    answer = set_one(scene, "", "share.delivery.count.limit", "3")
    assert answer.error_code == INVALID_REQUEST


def test_config_8_settings_outlive_the_group(scene: Scene) -> None:
    """And may be there before it."""

    group = scene.group(share_delivery_count_limit="7")
    member = scene.member(group, scene.topic())
    member.leave()
    assert delete_groups(scene, group) == [0]
    assert scene.configs(GROUP_RESOURCE, group)["share.delivery.count.limit"] == "7"


def test_config_9_setting_that_is_deleted_is_the_brokers_again(scene: Scene) -> None:
    group = scene.group(share_delivery_count_limit="7")
    gone = {"share.delivery.count.limit": ""}
    assert scene.alter_configs(GROUP_RESOURCE, group, gone, ALTER_DELETE).error_code == 0
    wait_for(
        lambda: scene.configs(GROUP_RESOURCE, group)["share.delivery.count.limit"] == "5",
        "the default",
    )


def test_config_10_validate_only_changes_nothing(scene: Scene) -> None:
    group = scene.new_name("group")
    change = alter_configs.AlterableConfig(
        name="share.delivery.count.limit", config_operation=0, value="7"
    )
    resource = alter_configs.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=(change,)
    )
    request = alter_configs.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=True
    )
    assert scene.ask(request).responses[0].error_code == 0
    assert scene.configs(GROUP_RESOURCE, group)["share.delivery.count.limit"] == "5"


def test_config_11_broker_has_the_defaults_of_all_groups(scene: Scene) -> None:
    shown = scene.configs(BROKER_RESOURCE, "1")
    assert {name: shown.get(name) for name in BROKER_DEFAULTS} == BROKER_DEFAULTS


def test_config_12_most_locks_that_a_group_may_hold(scene: Scene) -> None:
    """Runs cost the same for any number of records: ours permits a million, Kafka 4,000."""
    answer = set_one(scene, scene.group(), "share.partition.max.record.locks", "1000000")
    assert answer.error_code == {"ours": 0, "kafka": INVALID_CONFIG}[scene.kind]


def test_config_13_topic_has_a_setting_to_accept_dead_letters(scene: Scene) -> None:
    topic = scene.topic()
    key = "errors.deadletterqueue.group.enable"
    assert scene.configs(TOPIC_RESOURCE, topic.name)[key] == "false"
    assert scene.alter_configs(TOPIC_RESOURCE, topic.name, {key: "true"}).error_code == 0
    wait_for(lambda: scene.configs(TOPIC_RESOURCE, topic.name)[key] == "true", "the topic's own")


def test_config_14_settings_of_one_group_are_not_anothers(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 1)
    strict = scene.member(scene.group(share_record_lock_duration_ms="20000"), topic)
    other = scene.member(scene.group(), topic)
    assert (strict.fetch().lock_ms, other.fetch().lock_ms) == (20_000, 30_000)


def test_config_15_synonyms_name_the_brokers_setting(scene: Scene) -> None:
    shown = by_name(scene.described_configs(GROUP_RESOURCE, scene.new_name("group")))
    synonyms = shown["share.assignment.interval.ms"].synonyms
    assert synonyms[0].name == "group.share.assignment.interval.ms"


def test_config_29_default_of_a_group_is_a_synonym(scene: Scene) -> None:
    own = {
        "share.auto.offset.reset": ("latest", "earliest"),
        "share.isolation.level": ("read_uncommitted", "read_committed"),
        "share.renew.acknowledge.enable": ("true", "false"),
        "errors.deadletterqueue.topic.name": ("", "dead"),
        "errors.deadletterqueue.copy.record.enable": ("false", "true"),
    }
    group = scene.new_name("group")
    before = by_name(scene.described_configs(GROUP_RESOURCE, group))
    values = {name: value for name, (_, value) in own.items()}
    assert scene.alter_configs(GROUP_RESOURCE, group, values).error_code == 0
    wait_for(
        lambda: scene.configs(GROUP_RESOURCE, group)["share.isolation.level"] == "read_committed",
        "the group's settings",
    )
    after = by_name(scene.described_configs(GROUP_RESOURCE, group))
    for name, (default, value) in own.items():
        assert synonyms_of(before[name]) == [(name, default, DEFAULT)]
        assert synonyms_of(after[name]) == [(name, value, DYNAMIC_GROUP), (name, default, DEFAULT)]


def synonyms_of(shown: Any) -> list[tuple[str, str, int]]:
    return [(synonym.name, synonym.value, int(synonym.source)) for synonym in shown.synonyms]


def test_config_16_changes_of_one_request_are_atomic(scene: Scene) -> None:
    group = scene.new_name("group")
    both = {"share.delivery.count.limit": "7", "share.record.lock.duration.ms": "1"}
    assert scene.alter_configs(GROUP_RESOURCE, group, both).error_code == INVALID_CONFIG
    assert scene.configs(GROUP_RESOURCE, group)["share.delivery.count.limit"] == "5"


@pytest.mark.parametrize("name", ["a/b", "..", "two words", "x" * 250])
def test_config_17_dead_letter_topic_has_a_name_that_topics_can_have(
    scene: Scene, name: str
) -> None:
    answer = set_one(scene, scene.new_name("group"), "errors.deadletterqueue.topic.name", name)
    assert answer.error_code == {"ours": INVALID_CONFIG, "kafka": 0}[scene.kind]


def test_config_18_settings_of_unsupported_group_types_are_refused(scene: Scene) -> None:
    """Ours has no streams groups."""
    for key, ours in (
        ("consumer.session.timeout.ms", 0),
        ("streams.session.timeout.ms", INVALID_CONFIG),
    ):
        answer = set_one(scene, scene.new_name("group"), key, "45000")
        assert answer.error_code == {"ours": ours, "kafka": 0}[scene.kind]


def test_config_19_small_segments(scene: Scene) -> None:
    """Kafka's are of a megabyte at least."""
    answer = scene.alter_configs(TOPIC_RESOURCE, scene.topic().name, {"segment.bytes": "4096"})
    assert answer.error_code == {"ours": 0, "kafka": INVALID_CONFIG}[scene.kind]


def test_config_20_several_groups_have_their_changes_apart(scene: Scene) -> None:
    good, bad = scene.new_name("group"), scene.new_name("group")
    resources = tuple(
        alter_configs.AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=group,
            configs=(
                alter_configs.AlterableConfig(
                    name="share.delivery.count.limit", config_operation=0, value=value
                ),
            ),
        )
        for group, value in ((good, "7"), (bad, "1"))
    )
    request = alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    answers = {
        response.resource_name: int(response.error_code)
        for response in scene.ask(request).responses
    }
    assert answers == {good: 0, bad: INVALID_CONFIG}
    wait_for(
        lambda: scene.configs(GROUP_RESOURCE, good)["share.delivery.count.limit"] == "7", "its 7"
    )


def test_config_22_group_named_twice_in_a_request(scene: Scene) -> None:
    group = scene.new_name("group")
    resources = tuple(
        alter_configs.AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=group,
            configs=(alter_configs.AlterableConfig(name=key, config_operation=0, value="7"),),
        )
        for key in ("share.delivery.count.limit", "share.assignment.interval.ms")
    )
    request = alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    answers = scene.ask(request).responses
    assert [(answer.resource_name, answer.error_code) for answer in answers] == [
        (group, INVALID_REQUEST)
    ] * 2
    assert scene.configs(GROUP_RESOURCE, group)["share.delivery.count.limit"] == "5"


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("share.auto.offset.reset", " earliest ", "earliest"),
        ("share.renew.acknowledge.enable", " FALSE", "false"),
        ("share.delivery.count.limit", "+7 ", "7"),
    ],
)
def test_config_23_white_space_around_a_value(
    scene: Scene, key: str, value: str, shown: str
) -> None:
    group = scene.new_name("group")
    assert set_one(scene, group, key, value).error_code == 0
    wait_for(lambda: scene.configs(GROUP_RESOURCE, group)[key] == shown, f"{key}={shown}")


def test_config_21_default_of_all_groups_is_changed_while_the_broker_runs(scene: Scene) -> None:
    """Kafka wants to be started again for it."""
    key = "group.share.record.lock.duration.ms"
    answer = scene.alter_configs(BROKER_RESOURCE, "", {key: "25000"})
    assert answer.error_code == {"ours": 0, "kafka": INVALID_REQUEST}[scene.kind]
    if scene.kind == "ours":
        shown = scene.configs(GROUP_RESOURCE, scene.new_name("group"))
        assert shown["share.record.lock.duration.ms"] == "25000"
        back = scene.alter_configs(BROKER_RESOURCE, "", {key: ""}, ALTER_DELETE)
        assert back.error_code == 0


def test_config_24_list_grows_from_the_value_that_holds_and_shrinks(scene: Scene) -> None:
    topic, key = scene.topic(), "cleanup.policy"
    for operation, value, shown in (
        (ALTER_APPEND, "compact", "delete,compact"),
        (ALTER_SUBTRACT, "delete", "compact"),
    ):
        answer = scene.alter_configs(TOPIC_RESOURCE, topic.name, {key: value}, operation)
        assert answer.error_code == 0
        wait_for(lambda shown=shown: scene.configs(TOPIC_RESOURCE, topic.name)[key] == shown, shown)


def test_config_25_value_of_one_broker_overrides_that_of_all_brokers(scene: Scene) -> None:
    topic, key = scene.topic(), "message.max.bytes"
    batch = encode_batch([SimpleRecord(None, b"x" * 5000, int(time.time() * 1000))])
    assert scene.produce_batch(topic, batch) == 0

    def shown() -> tuple[str, int]:
        setting = by_name(scene.described_configs(BROKER_RESOURCE, "1"))[key]
        return setting.value, setting.config_source

    before = shown()
    try:
        for broker, value in (("1", "2000"), ("", "1000000")):
            assert scene.alter_configs(BROKER_RESOURCE, broker, {key: value}).error_code == 0
        wait_for(lambda: scene.configs(BROKER_RESOURCE, "").get(key) == "1000000", "both")
        wait_for(lambda: shown() == ("2000", DYNAMIC_BROKER), "the broker's own")
        wait_for(lambda: scene.produced(topic, batch).error_code == TOO_LARGE, "it to hold")
    finally:
        for broker in ("1", ""):
            scene.alter_configs(BROKER_RESOURCE, broker, {key: ""}, ALTER_DELETE)
    wait_for(lambda: shown() == before, "what held before")


@pytest.mark.ours_only("it takes two starts with different settings")
def test_config_26_stored_value_beyond_a_new_broker_limit_is_capped(
    scene: Scene, tmp_path: Path
) -> None:
    """It is still shown as it was set."""
    with start_ours(tmp_path) as peer, Scene(peer, scene.name) as generous:
        group = generous.group(share_record_lock_duration_ms="50000")
    stricter = {"group.share.max.record.lock.duration.ms": "40000"}
    with start_ours(tmp_path, stricter) as peer, Scene(peer, scene.name) as strict:
        shown = strict.configs(GROUP_RESOURCE, group)
        assert shown["share.record.lock.duration.ms"] == "50000"
        assert strict.member(group, strict.topic()).fetch().lock_ms == 40_000


def test_config_27_resources_with_settings_are_listed(scene: Scene) -> None:
    """Groups with settings, even if they do not exist; topics; the broker."""

    def listed(*kinds: int) -> set[tuple[int, str]]:
        request = list_config_resources.ListConfigResourcesRequest(resource_types=kinds)
        answer = scene.ask(request)
        assert answer.error_code == 0
        return {
            (resource.resource_type, resource.resource_name) for resource in answer.config_resources
        }

    topic, group, other = scene.topic(), scene.group(), scene.new_name("group")
    groups = listed(GROUP_RESOURCE)
    assert (GROUP_RESOURCE, group) in groups
    assert (GROUP_RESOURCE, other) not in groups
    assert {kind for kind, _ in groups} == {GROUP_RESOURCE}
    assert {
        (GROUP_RESOURCE, group),
        (TOPIC_RESOURCE, topic.name),
        (BROKER_RESOURCE, "1"),
    } <= listed()


def replace(scene: Scene, kind: int, name: str, configs: dict[str, str]) -> int:
    """AlterConfigs, the request of older clients: its error."""
    resource = replace_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            replace_configs.AlterableConfig(name=key, value=value) for key, value in configs.items()
        ),
    )
    request = replace_configs.AlterConfigsRequest(resources=(resource,), validate_only=False)
    return int(scene.ask(request).responses[0].error_code)


def test_config_28_alter_configs_replaces_all_settings(scene: Scene) -> None:
    group = scene.group(share_delivery_count_limit="7")
    wanted = {"share.record.lock.duration.ms": "20000"}
    assert replace(scene, GROUP_RESOURCE, group, wanted) == 0

    def replaced() -> bool:
        shown = scene.configs(GROUP_RESOURCE, group)
        named = ("share.record.lock.duration.ms", "share.delivery.count.limit")
        return [shown[key] for key in named] == ["20000", "5"]

    wait_for(replaced, "the group's one setting")
    topic = scene.topic(retention_bytes="1000000")
    assert replace(scene, TOPIC_RESOURCE, topic.name, {"segment.ms": "900000"}) == 0
    wait_for(
        lambda: scene.configs(TOPIC_RESOURCE, topic.name)["retention.bytes"] == "-1",
        "the topic's one setting",
    )
    bad = {"share.delivery.count.limit": "7", "share.record.lock.duration.ms": "1"}
    assert replace(scene, GROUP_RESOURCE, group, bad) == INVALID_CONFIG
    assert replaced()
