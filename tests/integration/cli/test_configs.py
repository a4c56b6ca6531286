"""``sharegroup configs`` against a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import Run

ONE_RESOURCE = "give one of --topic, --group, --broker and --entity-type with --entity-name"


def test_changed_group_config_is_described_until_it_is_deleted(run: Run) -> None:
    assert run("configs alter --group billing --set share.auto.offset.reset=earliest").code == 0
    assert run("configs describe --group billing").lines_from("group") == [
        ["NAME", "VALUE", "SOURCE"],
        ["share.auto.offset.reset", "earliest", "group"],
    ]
    assert run("configs alter --group billing --delete share.auto.offset.reset").code == 0
    assert run("configs describe --group billing --json").rows_from("group") == []


def test_settings_of_all_groups_are_described_without_a_name(run: Run) -> None:
    for number in (1, 2):
        changed = (
            f"configs alter --group many-{number} --set share.delivery.count.limit={number + 2}"
        )
        assert run(changed).code == 0
    words = "configs --describe --entity-type groups"
    rows = [row for row in run(f"{words} --json").rows if row["entity"].startswith("many-")]
    assert [(row["entity"], row["name"], row["value"]) for row in rows] == [
        ("many-1", "share.delivery.count.limit", "3"),
        ("many-2", "share.delivery.count.limit", "4"),
    ]
    lines = run(words).lines
    assert lines[0] == ["ENTITY", "NAME", "VALUE", "SOURCE"]
    assert ["many-1", "share.delivery.count.limit", "3", "group"] in lines


@pytest.mark.parametrize("kind", ["topics", "brokers", "client-metrics"])
def test_settings_of_all_resources_of_a_type_are_described(kind: str, run: Run) -> None:
    run("topics create some-topic --partitions 1 --config retention.ms=1000")
    run("configs alter --entity-type client-metrics --entity-name some --set interval.ms=5000")
    described = run(f"configs describe --entity-type {kind}")
    expected = {
        "topics": ["some-topic", "retention.ms", "1000"],
        "brokers": ["1", "num.partitions", "2"],
        "client-metrics": ["some", "interval.ms", "5000"],
    }[kind]
    assert (described.code, described.err) == (0, "")
    assert expected in [line[:3] for line in described.lines]


def test_all_option_shows_defaults(run: Run) -> None:
    rows = run("configs describe --group defaults --all --json").rows
    limit = {row["name"]: row for row in rows}["share.delivery.count.limit"]
    assert limit == {
        "name": "share.delivery.count.limit",
        "value": "5",
        "source": "default",
        "read_only": False,
        "sensitive": False,
    }


def test_broker_configuration_includes_its_start_settings(run: Run) -> None:
    assert ["num.partitions", "2", "static_broker"] in run("configs describe --broker 1").lines


def test_unknown_config_fails_and_changes_nothing(run: Run) -> None:
    refused = run(
        "configs alter --group careful --set share.nope=1 --set share.record.lock.duration.ms=20000"
    )
    assert refused.code == 1
    assert refused.err.startswith("Error: InvalidConfig: group 'careful'")
    assert "share.nope" in refused.err
    assert run("configs describe --group careful --json").rows_from("group") == []


def test_options_of_kafka_configs_are_accepted(run: Run, tmp_path: Path) -> None:
    entity = "--entity-type groups --entity-name tuned"
    changes = "share.auto.offset.reset=earliest,share.record.lock.duration.ms=[20000]"
    assert run(f"configs --alter {entity} --add-config {changes}").code == 0
    rows = run(f"configs --describe {entity} --json").rows_from("group")
    assert {row["name"]: row["value"] for row in rows} == {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": "20000",
    }
    gone = "share.auto.offset.reset,share.record.lock.duration.ms"
    file = tmp_path / "more.properties"
    file.write_text("share.heartbeat.interval.ms: 6000\n")
    more = ("--add-config-file", str(file))
    assert run(f"configs --alter {entity} --delete-config {gone}", *more).code == 0
    assert run(f"configs --describe {entity}").lines_from("group")[1:] == [
        ["share.heartbeat.interval.ms", "6000", "group"]
    ]
    assert run("configs --describe --entity-type brokers --entity-name 1").code == 0
    assert run("configs --describe --entity-type brokers --entity-default").code == 0
    assert run("configs --describe --broker-defaults").code == 0


def test_client_metrics_and_log_levels_are_changed_by_their_entity_types(run: Run) -> None:
    metrics = "--entity-type client-metrics --entity-name lag"
    assert run(f"configs alter {metrics} --set metrics=* --set interval.ms=1000").code == 0
    assert run(f"configs describe {metrics}").lines == [
        ["NAME", "VALUE", "SOURCE"],
        ["interval.ms", "1000", "client_metrics"],
        ["metrics", "*", "client_metrics"],
    ]
    assert run(f"configs alter {metrics} --delete metrics,interval.ms").code == 0
    loggers = "--entity-type broker-loggers --entity-name 1"
    changed = run(f"configs alter {loggers} --set sharegroup.broker.load.jobs=DEBUG")
    assert changed.out == "changed broker logger 1\n"
    levels = run(f"configs describe {loggers}").lines
    assert ["sharegroup.broker.load.jobs", "DEBUG", "dynamic_broker_logger"] in levels
    assert run(f"configs alter {loggers} --delete sharegroup.broker.load.jobs").code == 0
    elsewhere = run("configs describe --entity-type broker-loggers --entity-name 7")
    assert elsewhere.code == 1
    assert "broker '7' is not in the cluster" in elsewhere.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("describe", ONE_RESOURCE),
        (
            "describe --topic a --group b",
            ONE_RESOURCE,
        ),
        ("describe --entity-name a", "--entity-name and --entity-default need --entity-type"),
        (
            "alter --entity-type groups --set share.delivery.count.limit=3",
            ONE_RESOURCE,
        ),
        ("describe --broker first", "'first': expected a node id or 'default'"),
        ("alter --group g", "nothing to change: give --set KEY=VALUE or --delete KEY"),
    ],
)
def test_misuse_exits_with_2_and_an_explanation(words: str, says: str, run: Run) -> None:
    refused = run(f"configs {words}")
    assert refused.code == 2
    assert says in refused.err
