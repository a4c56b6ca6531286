"""Settings: where a value comes from, what a group may set, what an alteration may do."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from sharegroup.broker.configuration.config import (
    Config,
    GroupConfig,
    ModernGroupConfig,
    QuotaConfig,
    ServerConfig,
    ShareGroupConfig,
    TransactionConfig,
)
from sharegroup.broker.configuration.config_values import reset_duration_ms
from sharegroup.broker.configuration.live_config import LiveConfig, check_dynamic
from sharegroup.broker.configuration.setting_changes import (
    SettingChange,
    capped,
    changed_broker,
    changed_group,
    changed_topic,
    check_group,
)
from sharegroup.broker.configuration.settings import (
    describe_broker,
    describe_group,
    describe_topic,
    of_all_brokers,
)
from sharegroup.errors import InvalidConfig, InvalidRequest
from sharegroup.protocol_enums import ConfigOperation, ConfigSource


def test_value_of_the_group_overrides_the_broker_and_the_default() -> None:
    config = LiveConfig(Config.parse({"group.share.record.lock.duration.ms": "20000"}))
    own = {"share.record.lock.duration.ms": "15000"}
    setting = next(
        setting_
        for setting_ in describe_group(config, own)
        if setting_.name == "share.record.lock.duration.ms"
    )
    assert (setting.value, setting.source) == ("15000", ConfigSource.GROUP)
    assert setting.synonyms == (
        ("share.record.lock.duration.ms", "15000", ConfigSource.GROUP),
        ("group.share.record.lock.duration.ms", "20000", ConfigSource.STATIC_BROKER),
        ("group.share.record.lock.duration.ms", "30000", ConfigSource.DEFAULT),
    )


def test_value_set_at_run_time_overrides_the_start_configuration() -> None:
    live = LiveConfig(Config.parse({"message.max.bytes": "5000"}))
    live.apply({"message.max.bytes": "6000", "group.share.max.size": "7"}, {})
    assert (live.log.message_bytes_max, live.share_group.members_max) == (6000, 7)
    setting = {setting_.name: setting_ for setting_ in describe_broker(live)}["message.max.bytes"]
    assert (setting.value, setting.source, setting.read_only) == (
        "6000",
        ConfigSource.DYNAMIC_BROKER,
        False,
    )
    live.apply({}, {})
    assert live.log.message_bytes_max == 5000


def test_fixed_and_wrong_settings_of_the_broker_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"listeners cannot be changed while the broker runs"):
        check_dynamic(["listeners"])
    with pytest.raises(
        InvalidConfig,
        match=r"group\.share\.min\.session\.timeout\.ms=45000 must not be larger than "
        r"group\.share\.session\.timeout\.ms=5000",
    ):
        LiveConfig(Config()).check({"group.share.session.timeout.ms": "5000"}, {})


def test_unset_value_is_the_default() -> None:
    found = {setting_.name: setting_ for setting_ in describe_topic(LiveConfig(Config()), {})}
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == (
        "1073741824",
        ConfigSource.DEFAULT,
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share.record.lock.duration.ms": "14999"}, "between 15000 and 60000"),
        ({"share.delivery.count.limit": "11"}, "between 2 and 10"),
        ({"share.partition.max.record.locks": "1000001"}, "between 100 and 1000000"),
        ({"share.auto.offset.reset": "by_duration:1d"}, "by_duration"),
        ({"share.auto.offset.reset": "newest"}, "latest, earliest"),
        ({"share.isolation.level": "serializable"}, "read_uncommitted, read_committed"),
        ({"errors.deadletterqueue.topic.name": "__dead"}, "must not start with '__'"),
        ({"no.such": "1"}, "no.such"),
    ],
)
def test_group_settings_out_of_range_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check_group(settings, ShareGroupConfig(), ModernGroupConfig())


def test_a_million_locks_are_allowed() -> None:
    check_group(
        {"share.partition.max.record.locks": "1000000"}, ShareGroupConfig(), ModernGroupConfig()
    )


def test_session_must_outlast_the_heartbeat() -> None:
    broker = ShareGroupConfig(session_timeout_ms_min=1, heartbeat_interval_ms_max=60_000)
    with pytest.raises(InvalidConfig, match="must be larger"):
        check_group(
            {"share.session.timeout.ms": "9000", "share.heartbeat.interval.ms": "9000"},
            broker,
            ModernGroupConfig(),
        )


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:P7D", 604_800_000),
        ("by_duration:+pt1h", 3_600_000),
    ],
)
def test_duration_of_a_reset(text: str, milliseconds: int) -> None:
    assert reset_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["by_duration:P" + "9" * 400 + "D", "by_duration:PT\u0663S"])
def test_duration_that_is_no_number_of_milliseconds_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"share\.auto\.offset\.reset must be"):
        check_group({"share.auto.offset.reset": text}, ShareGroupConfig(), ModernGroupConfig())


LIVE = LiveConfig(Config())


def test_alteration_sets_and_deletes_keys() -> None:
    own = {"retention.ms": "1", "segment.ms": "2"}
    changes = (
        SettingChange("retention.ms", ConfigOperation.DELETE, None),
        SettingChange("cleanup.policy", ConfigOperation.SET, "compact"),
    )
    outcome = changed_topic(LIVE, own, changes)
    assert outcome == {"segment.ms": "2", "cleanup.policy": "compact"}
    assert own == {"retention.ms": "1", "segment.ms": "2"}


def test_repeated_key_and_list_operation_on_a_scalar_are_refused() -> None:
    twice = (SettingChange("retention.ms", 0, "1"), SettingChange("retention.ms", 0, "2"))
    with pytest.raises(InvalidRequest, match="twice"):
        changed_topic(LIVE, {}, twice)
    with pytest.raises(InvalidConfig, match=r"retention\.ms is not a list"):
        changed_topic(LIVE, {}, (SettingChange("retention.ms", ConfigOperation.APPEND, "1"),))
    with pytest.raises(InvalidRequest, match="operation 0 needs a value"):
        changed_group(
            LIVE, {}, (SettingChange("share.isolation.level", ConfigOperation.SET, None),)
        )


def test_append_and_subtract_change_the_effective_list() -> None:
    """The policy was never set, so `compact` is appended to the default, `delete`."""
    outcome = changed_topic(
        LIVE, {}, (SettingChange("cleanup.policy", ConfigOperation.APPEND, "compact"),)
    )
    assert outcome == {"cleanup.policy": "delete,compact"}
    subtract = SettingChange("cleanup.policy", ConfigOperation.SUBTRACT, "delete")
    assert changed_topic(LIVE, outcome, (subtract,)) == {"cleanup.policy": "compact"}
    append = SettingChange("log.cleanup.policy", ConfigOperation.APPEND, "compact")
    assert changed_broker(LIVE, {}, (append,)) == {"log.cleanup.policy": "delete,compact"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cleanup.policy", "nonsense", "one of delete, compact, not 'nonsense'"),
        ("min.cleanable.dirty.ratio", "1.5", "between 0 and 1, not 1.5"),
        ("min.cleanable.dirty.ratio", "half", "must be a number, not 'half'"),
        ("retention.ms", "-2", "at least -1, not -2"),
        ("retention.ms", "9223372036854775808", "not 9223372036854775808"),
        ("retention.ms", "1_000", "must be a whole number"),
        ("errors.deadletterqueue.group.enable", "yes", "must be true or false, not 'yes'"),
    ],
)
def test_topic_settings_out_of_range_are_refused_by_name(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=rf"{name} .*{message}"):
        changed_topic(LIVE, {}, (SettingChange(name, ConfigOperation.SET, value),))


def test_group_value_that_the_broker_no_longer_allows_is_capped() -> None:
    group = GroupConfig(lock_ms=60_000, delivery_count_max=2)
    held, said = capped(
        group, ShareGroupConfig(lock_ms_max=40_000, delivery_count_max_min=3), ModernGroupConfig()
    )
    assert (held.lock_ms, held.delivery_count_max) == (40_000, 3)
    assert said == {
        "share.record.lock.duration.ms": "60000 is outside of 15000 to 40000; 40000 is used",
        "share.delivery.count.limit": "2 is outside of 3 to 10; 3 is used",
    }
    assert capped(group, ShareGroupConfig(), ModernGroupConfig()) == (group, {})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group.share.record.lock.duration.ms": "1000"}, r"group\.share\.min\.record\.lock"),
        ({"group.share.max.assignment.interval.ms": "10"}, r"interval\.ms=1000 must not be larger"),
        ({"group.share.max.share.sessions": "10"}, r"size=200 must not be larger"),
        ({"group.share.assignors": ""}, "must have exactly 1 entries"),
        ({"group.share.delivery.count.limit": "11"}, "between 2 and 10"),
        ({"log.cleaner.min.cleanable.ratio": "2"}, "between 0 and 1"),
    ],
)
def test_broker_settings_that_contradict_each_other_are_refused(
    values: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Config.parse(values)


def test_setting_of_one_broker_overrides_that_of_all_brokers() -> None:
    live = LiveConfig(Config())
    name = "group.share.assignment.interval.ms"
    live.apply({name: "700"}, {name: "500", "log.cleaner.backoff.ms": "1000"})
    assert live.share_group.assignment_interval_ms == 700
    assert live.log.cleaner_backoff_ms == 1_000
    found = {setting_.name: setting_ for setting_ in describe_broker(live)}
    assert found[name].synonyms == (
        (name, "700", ConfigSource.DYNAMIC_BROKER),
        (name, "500", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (name, "1000", ConfigSource.DEFAULT),
    )
    of_all = {broker.name: broker.synonyms for broker in of_all_brokers(found.values())}
    assert of_all == {
        name: ((name, "500", ConfigSource.DYNAMIC_DEFAULT_BROKER),),
        "log.cleaner.backoff.ms": (
            ("log.cleaner.backoff.ms", "1000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ),
    }


def test_stored_setting_that_contradicts_the_new_start_is_left_out() -> None:
    live = LiveConfig(Config.parse({"group.share.max.assignment.interval.ms": "2000"}))
    name = "group.share.assignment.interval.ms"
    assert live.tenable({name: "3000", "group.share.max.size": "9"}, {name: "1500"}) == (
        {"group.share.max.size": "9"},
        {name: "1500"},
    )


@pytest.mark.parametrize(
    ("values", "expected_ms", "expected_source"),
    [
        ({}, "604800000", ConfigSource.DEFAULT),
        ({"log.retention.hours": "1"}, "3600000", ConfigSource.STATIC_BROKER),
        (
            {"log.retention.minutes": "2", "log.retention.hours": "1"},
            "120000",
            ConfigSource.STATIC_BROKER,
        ),
        ({"log.retention.ms": "5", "log.retention.minutes": "2"}, "5", ConfigSource.STATIC_BROKER),
        ({"log.retention.hours": "-1"}, "-1", ConfigSource.STATIC_BROKER),
    ],
)
def test_retention_holds_in_the_finest_unit_that_is_set(
    values: dict[str, str], expected_ms: str, expected_source: ConfigSource
) -> None:
    live = LiveConfig(Config.parse(values))
    [found] = [setting_ for setting_ in describe_topic(live, {}) if setting_.name == "retention.ms"]
    assert (found.value, found.source) == (expected_ms, expected_source)
    assert live.log.effective_retention_ms == int(expected_ms)


def test_keys_of_kafkas_internals_are_not_listed() -> None:
    names = {setting_.name for setting_ in describe_broker(LIVE)}
    assert "group.share.persister.class.name" not in names
    assert "group.share.max.share.sessions" in names


def test_server_properties_with_an_unknown_key_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"no\.such\.key"):
        Config.parse({"no.such.key": "1", "process.roles": "broker,controller"})


def test_value_that_is_too_long_is_refused() -> None:
    live = LiveConfig(Config())
    change = SettingChange("share.auto.offset.reset", ConfigOperation.SET, " " * 4_097)
    with pytest.raises(InvalidConfig, match="may have at most 4096 characters, not 4097"):
        changed_group(live, {}, (change,))


def test_values_of_a_topic_are_not_too_long_together() -> None:
    """20,000 topics with long values of every setting took gigabytes."""
    live = LiveConfig(Config())
    half = SettingChange("retention.ms", ConfigOperation.SET, "7".rjust(2_049))
    own = changed_topic(live, {}, (half,))
    with pytest.raises(InvalidConfig, match="one topic may have at most 4096 characters, not 4098"):
        changed_topic(
            live, own, (SettingChange("segment.bytes", ConfigOperation.SET, "7000".rjust(2_049)),)
        )


def test_a_part_of_the_configuration_is_a_value() -> None:
    part, equal = QuotaConfig(windows=3), QuotaConfig(windows=3)
    assert part == equal != QuotaConfig(windows=4)
    assert hash(part) == hash(equal)
    assert part != TransactionConfig()
    assert "windows=3" in repr(part)
    assert replace(part, windows=5).windows == 5
    with pytest.raises(FrozenInstanceError):
        part.windows = 4  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del part.windows
    with pytest.raises(TypeError, match="QuotaConfig has no field window"):
        QuotaConfig(window=3)  # type: ignore[call-arg]


def test_data_directory_is_the_only_entry_of_its_list() -> None:
    assert ServerConfig(log_dirs=" /data/a b ,").data_directory == "/data/a b"


@pytest.mark.parametrize("text", ["", " ,", "/a,/b", "/a,/a"])
def test_data_directory_must_be_one(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"log\.dirs must name one directory"):
        assert ServerConfig(log_dirs=text).data_directory
