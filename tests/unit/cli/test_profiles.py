"""The cluster that a command talks to: options, variables and profiles, in their order."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from sharegroup.cli.common.cluster_access import Access, complete_profiles
from sharegroup.cli.common.data_options import with_properties

TWO_PROFILES = """
default = "local"

[profiles.local]
bootstrap.servers = "127.0.0.1:19092"

[profiles.production]
bootstrap.servers = "kafka-1:9093,kafka-2:9093"
security.protocol = "SASL_SSL"
"sasl.mechanism" = "PLAIN"
sasl.username = "alice"
sasl.password = "secret"
request.timeout.ms = 5000
ssl.check.hostname = false
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the configuration file, which does not exist yet; no variable is set."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("SHAREGROUP_CONFIG", str(path))
    monkeypatch.delenv("SHAREGROUP_BOOTSTRAP", raising=False)
    monkeypatch.delenv("SHAREGROUP_PROFILE", raising=False)
    return path


def access(
    bootstrap: str | None = None, config: Path | None = None, profile: str | None = None
) -> Access:
    return Access.of(bootstrap, config, 1_000, profile)


def test_password_of_the_default_profile_is_not_sent_to_the_address_of_a_command_property(
    file: Path, tmp_path: Path
) -> None:
    file.write_text(TWO_PROFILES.replace('"local"', '"production"', 1))
    other = with_properties(access(), ["bootstrap.servers=elsewhere:9092", "acks=all"])
    assert (other.bootstrap_servers, other.properties) == ("elsewhere:9092", {"acks": "all"})
    config = tmp_path / "client.properties"
    config.write_text("sasl.password = own\n")
    other = with_properties(access(config=config), ["bootstrap.servers=elsewhere:9092"])
    assert other.properties == {"sasl.password": "own"}


def test_profile_of_the_option_applies_to_the_address_of_a_command_property(file: Path) -> None:
    file.write_text(TWO_PROFILES)
    other = with_properties(access(profile="production"), ["bootstrap.servers=proxy:9093"])
    assert other.bootstrap_servers == "proxy:9093"
    assert other.properties["sasl.password"] == "secret"
    assert with_properties(access(), ["acks=1"]).bootstrap_servers == "127.0.0.1:19092"


def test_default_profile_gives_address_and_properties(file: Path) -> None:
    file.write_text(TWO_PROFILES.replace('"local"', '"production"', 1))
    found = access()
    assert found.bootstrap_servers == "kafka-1:9093,kafka-2:9093"
    assert found.client_options() == {
        "bootstrap_servers": "kafka-1:9093,kafka-2:9093",
        "default_api_timeout_ms": 1_000,
        "connect_timeout_ms": 1_000,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
        "request_timeout_ms": 5_000,
        "ssl_check_hostname": False,
    }
    assert found.where == f"kafka-1:9093,kafka-2:9093 (profile 'production' in {file})"
    assert "secret" not in repr(found)


@pytest.mark.parametrize("origin", ["option", "file", "variable"])
def test_default_profile_never_sends_its_password_to_another_address(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    file.write_text(TWO_PROFILES)
    monkeypatch.setenv("SHAREGROUP_PROFILE", "production")
    properties = tmp_path / "client.properties"
    properties.write_text("bootstrap.servers=elsewhere:9092\nclient.id=me\n")
    if origin == "variable":
        monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "elsewhere:9092")
    found = access(
        "elsewhere:9092" if origin == "option" else None, properties if origin == "file" else None
    )
    assert found.bootstrap_servers == "elsewhere:9092"
    assert dict(found.properties) == ({"client.id": "me"} if origin == "file" else {})


def test_profile_option_wins_over_variables_and_keeps_its_properties_for_another_address(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(TWO_PROFILES)
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "elsewhere:9092")
    monkeypatch.setenv("SHAREGROUP_PROFILE", "local")
    assert access(profile="production").bootstrap_servers == "kafka-1:9093,kafka-2:9093"
    other = access("kafka-3:9093", profile="production")
    assert (other.bootstrap_servers, other.properties["sasl.username"]) == ("kafka-3:9093", "alice")


def test_command_config_overrides_properties_of_the_profile(file: Path, tmp_path: Path) -> None:
    file.write_text(TWO_PROFILES)
    properties = tmp_path / "client.properties"
    properties.write_text("sasl.username=bob\nkey.serializer=x\n")
    found = access(None, properties, "production")
    warned: list[str] = []
    options = found.client_options(warn=warned.append)
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("bob", "secret")
    assert warned == [
        f"profile 'production' in {file} and --command-config: key.serializer is ignored"
    ]


def test_variable_names_the_address_without_a_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "kafka:9092")
    assert access().where == "kafka:9092 (SHAREGROUP_BOOTSTRAP)"
    assert access("other:9092").where == "other:9092"


def test_without_any_setting_the_address_is_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SHAREGROUP_CONFIG", "SHAREGROUP_BOOTSTRAP", "SHAREGROUP_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = access()
    assert found.where == "127.0.0.1:9092 (the default)"
    (tmp_path / "sharegroup").mkdir()
    (tmp_path / "sharegroup/config.toml").write_text(TWO_PROFILES)
    assert access().bootstrap_servers == "127.0.0.1:19092"


@pytest.mark.parametrize(
    ("text", "profile", "problem"),
    [
        (None, None, "SHAREGROUP_CONFIG: the file {} does not exist"),
        (None, "test", "--profile 'test': the configuration file {} does not exist; create it"),
        (TWO_PROFILES, "test", "--profile 'test' is not in {}; its profiles: local, production"),
        ('default = "test"', None, "default 'test' is not in {}; its profiles: none"),
        ("default = 1", None, "{}: default = 1; expected the name of a profile"),
        ("profiles = 1", "test", "{}: profiles = 1; expected a table"),
        ("[profiles.test", "test", "{} is not a TOML file: "),
        ("[profiles.test]\na.b = [1]", "test", "{}: a.b is a list; expected a text or a number"),
    ],
)
def test_unusable_file_is_named_with_its_problem(
    file: Path, text: str | None, profile: str | None, problem: str
) -> None:
    if text is not None:
        file.write_text(text)
    with pytest.raises(click.UsageError) as refused:
        access(profile=profile)
    assert problem.format(file) in refused.value.message


def test_names_of_profiles_are_completed(file: Path) -> None:
    command = click.Command("c")
    context, parameter = click.Context(command), click.Option(["--profile"])
    assert complete_profiles(context, parameter, "") == []
    file.write_text(TWO_PROFILES)
    assert complete_profiles(context, parameter, "") == ["local", "production"]
    assert complete_profiles(context, parameter, "p") == ["production"]
    file.write_text("[")
    assert complete_profiles(context, parameter, "") == []


def test_wrong_address_names_the_option_or_variable_that_has_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "garbage")
    reason = "bootstrap server 'garbage': expected host:port"
    with pytest.raises(click.UsageError, match=f"SHAREGROUP_BOOTSTRAP: {reason}"):
        access()
    with pytest.raises(click.UsageError, match=f"--bootstrap-server: {reason}"):
        access("garbage")
