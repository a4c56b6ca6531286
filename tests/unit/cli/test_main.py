"""The command line as a whole: verbs, exit codes, and what `--help` must not load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sharegroup import __version__
from sharegroup.cli.common.cluster_access import Access, telling_errors
from sharegroup.cli.main import VERBS, cli, main
from sharegroup.errors import RequestTimedOut

HEAVY = ("asyncio", "kio", "aiokafka", "rich", "sharegroup.client", "sharegroup.broker")


def outcome(words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words.split())
    return int(end.value.code or 0)


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("--help") == 0
    printed = " ".join(capsys.readouterr().out.split())
    for verb, purpose in VERBS.items():
        assert verb in printed
        assert purpose in printed


@pytest.mark.parametrize("verb", list(VERBS))
def test_help_of_a_verb_begins_like_the_list_of_verbs(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(f"{verb} --help") == 0
    first_word = VERBS[verb].split()[0]
    assert first_word in capsys.readouterr().out


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("--version") == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        "topics",
        "topics list",
        "groups --describe",
        "consume",
        "perf consume",
        "worker",
        "worker plan",
    ],
)
def test_version_is_printed_by_every_verb(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(f"{words} --version") == 0
    assert capsys.readouterr().out == f"sharegroup, version {__version__}\n"


def test_unknown_verb_is_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("explode") == 2
    assert "No such command 'explode'" in capsys.readouterr().err


def test_unusable_command_config_is_a_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=TLS\n")
    with pytest.raises(SystemExit) as end:
        main(["groups", "list", "--command-config", str(file)])
    assert end.value.code == 2
    assert "security_protocol='TLS'" in capsys.readouterr().err


def commands(command: click.Command, context: click.Context) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, context)


def test_every_cluster_verb_accepts_bootstrap_server_and_its_short_form() -> None:
    options = [
        parameter.opts
        for command in commands(cli, click.Context(cli, info_name="sharegroup"))
        for parameter in command.params
        if "bootstrap" in str(parameter.name)
    ]
    assert len(options) > 20
    assert all(names == ["--bootstrap-server", "--bootstrap"] for names in options)


@pytest.mark.parametrize("is_of_advertised", [True, False])
def test_advice_depends_on_the_cause_of_an_error_and_not_on_its_text(
    is_of_advertised: bool,
) -> None:
    """A topic may be named like a setting."""
    error = RequestTimedOut("topic 'advertised.listeners': gave up after 100 ms")
    error.is_of_advertised = is_of_advertised
    with pytest.raises(click.ClickException) as ended, telling_errors(Access("h:1", 1, {}, "")):
        raise error
    assert ended.value.message.startswith("no response from h:1") is not is_of_advertised


@pytest.mark.parametrize("verb", ["data", "dlq", "worker"])
def test_purposes_of_verbs_are_whole_sentences_on_a_narrow_terminal(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Click would cut them: ``Copy the data directory as it is at one moment, also...``"""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    _, _, commands = capsys.readouterr().out.partition("Commands:\n")
    assert len(commands.splitlines()) > 3
    assert "..." not in commands
    assert max(map(len, commands.splitlines())) <= 80
