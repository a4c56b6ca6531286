"""The container's entry point and what its recipe copies; no Docker engine is needed for these."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_entry(tmp_path):
    """Run the entry point with a `sharegroup` that prints its arguments, one a line."""
    stand_in = tmp_path / "sharegroup"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.defpath}", "SHAREGROUP_HOST": "queue.local"}

    def run(*arguments: str, **variables: str) -> list[str]:
        entry = [str(ROOT / "container" / "entry"), *arguments]
        given = {**environment, **variables}
        done = subprocess.run(entry, env=given, capture_output=True, text=True, check=True)
        arguments_given = done.stdout.splitlines()
        # The log says that a broker is open, and only then.
        assert ("event=container_open" in done.stderr) == ("--insecure" in arguments_given)
        return arguments_given

    return run


BROKER = [
    "serve", "--host", "0.0.0.0", "--port", "9092", "--data", "/data", "--insecure",
    "--set", "sharegroup.advertised.host=queue.local",
]  # fmt: skip


def test_the_entry_point_serves_a_broker_by_default(run_entry):
    assert run_entry() == BROKER
    assert run_entry("broker") == BROKER


def test_options_after_broker_are_last_and_override(run_entry):
    assert run_entry("broker", "--durability", "os") == [*BROKER, "--durability", "os"]


@pytest.mark.parametrize("name", ["KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"])
def test_the_environment_of_kafkas_image_replaces_the_listener(run_entry, name):
    options = ["serve", "--kafka-env", "--data", "/data", "--insecure"]
    assert run_entry(**{name: "PLAINTEXT://:9092"}) == options
    assert run_entry("broker", "--durability", "os", **{name: "PLAINTEXT://:9092"}) == [
        *options,
        "--durability",
        "os",
    ]


def test_a_broker_with_a_settings_file_is_not_opened(run_entry, tmp_path):
    settings = tmp_path / "server.properties"
    settings.write_text("")
    expected = ["serve", "--config", str(settings), "--data", "/data"]
    assert run_entry(SHAREGROUP_CONFIG=str(settings)) == expected
    assert run_entry("broker", "--durability", "os", SHAREGROUP_CONFIG=str(settings)) == [
        *expected,
        "--durability",
        "os",
    ]
    assert run_entry(SHAREGROUP_CONFIG=str(settings), KAFKA_LISTENERS="SASL_SSL://:9092") == [
        "serve", "--config", str(settings), "--kafka-env", "--data", "/data",
    ]  # fmt: skip


def test_a_named_settings_file_that_is_missing_does_not_open_the_broker(run_entry, tmp_path):
    missing = str(tmp_path / "missing.properties")
    assert run_entry(SHAREGROUP_CONFIG=missing) == [
        "serve", "--config", missing, "--data", "/data",
    ]  # fmt: skip


def test_other_arguments_are_a_command_of_sharegroup(run_entry):
    assert run_entry("groups", "list", "--json") == ["groups", "list", "--json"]


def test_dockerfile_copies_existing_files_that_are_not_ignored():
    recipe = (ROOT / "Dockerfile").read_text()
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", recipe, re.MULTILINE)
        for name in line.split()
    ]
    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name.split('/')[0].removeprefix('./')}" in ignore, name


def test_the_container_does_not_run_as_root():
    recipe = (ROOT / "Dockerfile").read_text()
    assert recipe.index("USER sharegroup") < recipe.index("ENTRYPOINT")
