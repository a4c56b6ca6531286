"""Which cluster programs talk to: each source against the next one in the order."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sharegroup.client.settings.cluster_choice import NamedAddress, choose_cluster
from sharegroup.errors import InvalidConfig
from sharegroup.worker import App

ARGUMENT = NamedAddress("argument:9092", "an argument")
OWN = NamedAddress(["own:9092", "other:9092"], "App 'x'")
PROFILE = 'default = "p"\n[profiles.p]\nbootstrap.servers = "profile:9092"\nsasl.password = "s"\n'


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of an empty configuration file; no variable names a cluster."""
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("SHAREGROUP_CONFIG", str(path))
    for name in ("SHAREGROUP_BOOTSTRAP", "SHAREGROUP_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return path


def test_first_source_that_names_an_address_is_chosen(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_cluster().where == "127.0.0.1:9092 (the default)"
    file.write_text(PROFILE)
    assert choose_cluster().where == f"profile:9092 (profile 'p' in {file})"
    assert choose_cluster((), OWN).where == "own:9092,other:9092 (App 'x')"
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "variable:9092")
    assert choose_cluster((), OWN).where == "variable:9092 (SHAREGROUP_BOOTSTRAP)"
    assert choose_cluster([ARGUMENT], OWN).where == "argument:9092 (an argument)"
    unnamed = NamedAddress(None, "an option")
    assert choose_cluster([unnamed, ARGUMENT], OWN).where == "argument:9092 (an argument)"


def test_password_of_a_profile_goes_only_to_its_own_address(file: Path) -> None:
    file.write_text(PROFILE)
    assert choose_cluster().properties == {"sasl.password": "s"}
    assert "sasl" not in repr(choose_cluster())
    assert choose_cluster((), OWN).properties == {}
    assert choose_cluster(may_imply=False).where == "127.0.0.1:9092 (the default)"


def test_choice_is_one_log_line_with_the_address_that_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "variable:9092")
    choose_cluster((), OWN).log("x")
    choose_cluster([ARGUMENT]).log("sharegroup")
    assert caplog.messages == [
        (
            "event=cluster.chosen program=x bootstrap=variable:9092 origin='SHAREGROUP_BOOTSTRAP' "
            "unused=own:9092,other:9092"
        ),
        "event=cluster.chosen program=sharegroup bootstrap=argument:9092 origin='an argument'",
    ]


def test_wrong_address_names_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "garbage")
    with pytest.raises(InvalidConfig, match="SHAREGROUP_BOOTSTRAP: bootstrap server 'garbage'"):
        choose_cluster((), OWN)


def test_assignment_to_an_application_is_an_explicit_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "variable:9092")
    app = App("x", bootstrap_servers="own:9092")
    assert app.bootstrap_servers == "variable:9092"
    app.bootstrap_servers = "assigned:9092"
    assert app.cluster.where == "assigned:9092 (an assignment)"


def test_address_among_the_client_options_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="client: bootstrap_servers is an option of the App"):
        App("x", client={"bootstrap_servers": "hidden:9092"})
