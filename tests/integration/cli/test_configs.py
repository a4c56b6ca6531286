"""``sharegroup configs`` against a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import Run

ONE_RESOURCE = "give one of --topic, --group, --broker and --entity-type"


def test_changed_group_config_is_described_until_it_is_deleted(run: Run) -> None:
    assert run("configs alter --group billing --set share.auto.offset.reset=earliest").code == 0
    assert run("configs describe --group billing").lines_from("group") == [
        ["NAME", "VALUE", "SOURCE"],
        ["share.auto.offset.reset", "earliest", "group"],
    ]
    assert run("configs alter --group billing --delete share.auto.offset.reset").code == 0
    assert run("configs describe --group billing --json").rows_from("group") == []


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
            "describe --entity-type groups",
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
