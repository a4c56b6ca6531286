"""Settings of single listeners: precedence, checks, changes, and what administrators see."""

from __future__ import annotations

import pytest

from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.listener_settings import listener_settings
from sharegroup.broker.configuration.live_config import (
    Change,
    LiveConfig,
    change_of,
    check_dynamic,
    without_secrets,
)
from sharegroup.broker.configuration.setting_changes import SettingChange, changed_broker
from sharegroup.broker.configuration.settings import describe_broker
from sharegroup.errors import InvalidConfig
from sharegroup.protocol_enums import ConfigOperation, ConfigSource

OF_EXTERNAL = "listener.name.external.ssl.client.auth"


def test_key_of_a_listener_replaces_the_common_key_for_this_listener_alone() -> None:
    config = Config.parse({"ssl.client.auth": "requested", OF_EXTERNAL: "required"})
    external, internal = (
        listener_settings(config.tls, config.given, name) for name in ("EXTERNAL", "INTERNAL")
    )
    assert (external.client_auth, internal.client_auth) == ("required", "requested")
    assert external.keystore_type == "JKS"


def test_key_of_a_listener_from_the_start_wins_over_a_common_key_that_was_changed() -> None:
    live = LiveConfig(Config.parse({OF_EXTERNAL: "required"}))
    assert listener_settings(live.tls, live.texts, "EXTERNAL").client_auth == "required"
    live.apply({OF_EXTERNAL: "none"}, {})
    assert listener_settings(live.tls, live.texts, "EXTERNAL").client_auth == "none"


def test_value_for_a_listener_is_checked_and_named_with_its_listener() -> None:
    with pytest.raises(InvalidConfig, match=r"listener\.name\.external\.ssl\.client\.auth must be"):
        Config.parse({OF_EXTERNAL: "maybe"})


def test_listener_in_capital_letters_is_refused_because_kafka_would_ignore_it() -> None:
    with pytest.raises(InvalidConfig, match=r"expected listener\.name\.external\.ssl"):
        Config.parse({"listener.name.EXTERNAL.ssl.client.auth": "none"})


def test_key_of_a_listener_has_an_effect_if_there_is_such_a_listener() -> None:
    values = {OF_EXTERNAL: "none", "listeners": "EXTERNAL://127.0.0.1:9092"}
    assert Config.parse(values).without_effect == []
    assert Config.parse({OF_EXTERNAL: "none"}).without_effect == [OF_EXTERNAL]


def test_keys_of_tls_change_for_single_listeners_of_a_single_broker_as_in_kafka() -> None:
    check_dynamic([OF_EXTERNAL])
    with pytest.raises(InvalidConfig, match="can only be set for a single broker"):
        check_dynamic([OF_EXTERNAL], of_all_brokers=True)
    with pytest.raises(InvalidConfig, match=r"can only be changed for a single listener.*listener"):
        check_dynamic(["ssl.client.auth"])
    assert change_of("listener.name.a.ssl.principal.mapping.rules") is Change.READ_ONLY
    assert change_of("ssl.keystore.location") is Change.PER_BROKER


def test_changed_values_are_offered_to_the_checks_of_other_parts() -> None:
    started = {"ssl.keystore.type": "PEM", "listeners": "EXTERNAL://127.0.0.1:1"}
    live = LiveConfig(Config.parse(started))
    offered = []

    def refuse(*values: object) -> None:
        offered.append(values)
        raise InvalidConfig("no such file")

    live.on_offer(refuse)
    with pytest.raises(InvalidConfig, match="no such file"):
        live.offer({OF_EXTERNAL: "none"}, {}, [OF_EXTERNAL])
    assert offered == [({**started, OF_EXTERNAL: "none"}, [OF_EXTERNAL])]


def test_key_of_a_listener_that_does_not_exist_can_only_be_unset() -> None:
    live = LiveConfig(Config())
    with pytest.raises(InvalidConfig, match="no listener EXTERNAL; its listeners are PLAINTEXT"):
        live.offer({OF_EXTERNAL: "none"}, {}, [OF_EXTERNAL])
    live.offer({}, {}, [OF_EXTERNAL])


def test_list_of_a_listener_begins_with_the_list_of_all() -> None:
    live = LiveConfig(Config())
    name = "listener.name.external.ssl.enabled.protocols"
    change = SettingChange(name, ConfigOperation.SUBTRACT, "TLSv1.2")
    assert changed_broker(live, {}, (change,)) == {name: "TLSv1.3"}


def test_administrators_see_keys_of_listeners_that_were_set() -> None:
    live = LiveConfig(Config.parse({"listener.name.external.ssl.key.password": "secret"}))
    live.apply({OF_EXTERNAL: "required"}, {})
    found = {setting.name: setting for setting in describe_broker(live)}
    assert found[OF_EXTERNAL].value == "required"
    assert found[OF_EXTERNAL].source is ConfigSource.DYNAMIC_BROKER
    assert not found[OF_EXTERNAL].read_only
    assert found["listener.name.external.ssl.key.password"].is_sensitive


def test_passwords_are_replaced_in_log_lines() -> None:
    settings = {
        "listener.name.external.ssl.key.password": "battery",
        "sasl.jaas.config": 'required user_a="battery";',
        "no.such.key": "battery",
        "num.io.threads": "4",
        "log.retention.ms": "5",
    }
    shown = without_secrets(settings)
    assert "battery" not in str(shown)
    assert (shown["num.io.threads"], shown["log.retention.ms"]) == ("4", "5")


def test_stored_password_that_is_left_out_at_start_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = {"no.longer.a.key": "battery"}
    assert LiveConfig(Config()).tenable(stored, {}) == ({}, {})
    assert "event=stored_setting_left_out no.longer.a.key" in caplog.text
    assert "battery" not in caplog.text
