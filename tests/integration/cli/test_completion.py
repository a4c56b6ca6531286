"""What a shell is told when TAB is pressed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sharegroup.cli.main import main
from tests.integration.cli.conftest import Run


def completed(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """What bash is offered for the last of these words."""
    monkeypatch.setenv("_SHAREGROUP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit) as end:
        main([])
    monkeypatch.delenv("_SHAREGROUP_COMPLETE")
    printed = capsys.readouterr()
    assert (int(end.value.code or 0), printed.err) == (0, "")
    return [line.removeprefix("plain,") for line in printed.out.split()]


def test_verbs_and_options_are_completed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed("sharegroup groups de", monkeypatch, capsys) == [
        "delete",
        "delete-offsets",
        "describe",
    ]
    assert completed("sharegroup groups describe --mem", monkeypatch, capsys) == ["--members"]


@pytest.mark.parametrize(
    "words",
    [
        "topics --bootstrap-server {bootstrap} --describe --topic com",
        "topics describe --bootstrap-server {bootstrap} com",
        "groups reset-offsets --bootstrap-server {bootstrap} g --topic com",
        "configs describe --bootstrap-server {bootstrap} --topic com",
    ],
)
def test_topic_names_are_completed_from_the_cluster(
    words: str,
    run: Run,
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("topics create completed-topic --if-not-exists")
    line = f"sharegroup {words.format(bootstrap=bootstrap)}"
    assert completed(line, monkeypatch, capsys) == ["completed-topic"]


def test_group_names_are_completed_from_the_cluster(
    run: Run, bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("topics create any-topic --partitions 1")
    run("groups reset-offsets completed-group --topic any-topic --to-latest --execute")
    line = f"sharegroup groups describe --bootstrap-server {bootstrap} completed"
    assert completed(line, monkeypatch, capsys) == ["completed-group"]


def test_completion_uses_the_command_config_without_warnings(
    run: Run,
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("topics create configured-topic --if-not-exists")
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={bootstrap}\nkey.serializer=StringSerializer\n")
    line = f"sharegroup topics describe --command-config {file} conf"
    assert completed(line, monkeypatch, capsys) == ["configured-topic"]


def test_cluster_that_does_not_answer_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "sharegroup groups describe --bootstrap-server 127.0.0.1:1 com"
    assert completed(line, monkeypatch, capsys) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_one_that_its_shell_can_read(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["completion", shell])
    assert not end.value.code
    script = capsys.readouterr().out
    assert "_SHAREGROUP_COMPLETE" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
