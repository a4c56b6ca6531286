"""Settings: where a value comes from, what a group may set, what an alteration may do."""

from __future__ import annotations

import pytest

from sharegroup.broker.config import Config, ShareGroupConfig
from sharegroup.broker.config_values import reset_duration_ms
from sharegroup.broker.live_config import LiveConfig, check_dynamic
from sharegroup.broker.settings import (
    Change,
    Operation,
    Source,
    changed,
    check_group,
    describe_broker,
    describe_group,
    describe_topic,
)
from sharegroup.errors import InvalidConfig, InvalidRequest


def test_own_value_comes_before_the_brokers_and_the_default() -> None:
    config = LiveConfig(Config.parse({"group.share.record.lock.duration.ms": "20000"}))
    own = {"share.record.lock.duration.ms": "15000"}
    setting = next(
        one for one in describe_group(config, own) if one.name == "share.record.lock.duration.ms"
    )
    assert (setting.value, setting.source) == ("15000", Source.DYNAMIC_GROUP)
    assert setting.synonyms == (
        ("share.record.lock.duration.ms", "15000", Source.DYNAMIC_GROUP),
        ("group.share.record.lock.duration.ms", "20000", Source.STATIC_BROKER),
        ("group.share.record.lock.duration.ms", "30000", Source.DEFAULT),
    )


def test_value_set_at_run_time_wins_over_what_the_broker_was_started_with() -> None:
    live = LiveConfig(Config.parse({"message.max.bytes": "5000"}))
    live.apply({"message.max.bytes": "6000", "group.share.max.size": "7"})
    assert (live.log.message_bytes_max, live.share_group.members_max) == (6000, 7)
    setting = {one.name: one for one in describe_broker(live)}["message.max.bytes"]
    assert (setting.value, setting.source, setting.read_only) == (
        "6000",
        Source.DYNAMIC_BROKER,
        False,
    )
    live.apply({})
    assert live.log.message_bytes_max == 5000


def test_fixed_and_wrong_settings_of_the_broker_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"listeners cannot be changed while the broker runs"):
        check_dynamic({"listeners": "PLAINTEXT://127.0.0.1:1"})
    with pytest.raises(InvalidConfig, match="must be larger"):
        LiveConfig(Config()).check({"group.share.session.timeout.ms": "5000"})


def test_value_that_nobody_set_is_the_default() -> None:
    found = {one.name: one for one in describe_topic(LiveConfig(Config()), {})}
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == (
        "1073741824",
        Source.DEFAULT,
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
        check_group(settings, ShareGroupConfig())


def test_a_million_locks_are_allowed() -> None:
    check_group({"share.partition.max.record.locks": "1000000"}, ShareGroupConfig())


def test_session_must_outlast_the_heartbeat() -> None:
    broker = ShareGroupConfig(session_timeout_ms_min=1, heartbeat_interval_ms_max=60_000)
    with pytest.raises(InvalidConfig, match="must be larger"):
        check_group(
            {"share.session.timeout.ms": "9000", "share.heartbeat.interval.ms": "9000"}, broker
        )


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:P7D", 604_800_000),
    ],
)
def test_duration_of_a_reset(text: str, milliseconds: int) -> None:
    assert reset_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["by_duration:P" + "9" * 400 + "D", "by_duration:PT\u0663S"])
def test_duration_that_is_no_number_of_milliseconds_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"share\.auto\.offset\.reset must be"):
        check_group({"share.auto.offset.reset": text}, ShareGroupConfig())


def test_alteration_sets_and_deletes_keys() -> None:
    own = {"a": "1", "b": "2"}
    outcome = changed(own, (Change("a", Operation.DELETE, None), Change("c", Operation.SET, "3")))
    assert outcome == {"b": "2", "c": "3"}
    assert own == {"a": "1", "b": "2"}


def test_key_named_twice_and_lists_are_refused() -> None:
    twice = (Change("a", Operation.SET, "1"), Change("a", Operation.SET, "2"))
    with pytest.raises(InvalidRequest, match="twice"):
        changed({}, twice)
    with pytest.raises(InvalidConfig, match="not a list"):
        changed({}, (Change("a", Operation.APPEND, "1"),))


def test_server_properties_with_an_unknown_key_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"no\.such\.key"):
        Config.parse({"no.such.key": "1", "process.roles": "broker,controller"})
