"""docs/retry-and-dead-letters.md: its examples declare what it says, and its commands are commands.

`make docs-test` runs them.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from sharegroup.cli.main import cli
from sharegroup.dead_letters.reasons import REASONS, DeadLetterReason
from sharegroup.worker import App, BrokerDeadLetter, DeadLetter

PAGE = (Path(__file__).parents[3] / "docs" / "retry-and-dead-letters.md").read_text()
COMMANDS = re.findall(r"^\$ sharegroup (dlq .+)$", PAGE, re.MULTILINE)


def test_examples_declare_the_documented_dead_letters() -> None:
    letters = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        names: dict[str, object] = {}
        if "async with" in example:
            continue  # What it calls is called in `test_steering`.
        exec(compile(example, "docs/retry-and-dead-letters.md", "exec"), names)
        if isinstance(app := names.get("app"), App):
            letters |= {route.group: route.dead_letter for route in app.route_list}
    assert letters["audit"] == BrokerDeadLetter("dlq.audit")
    assert letters["billing"] == DeadLetter("orders.dead")


def test_document_contains_commands() -> None:
    assert len(COMMANDS) >= 7


@pytest.mark.parametrize("words", COMMANDS)
def test_command_is_one(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rest = shlex.split(words)
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0])
        assert found is not None, f"there is no {rest[0]}"
        command, rest = found, rest[1:]
    # Parsed and not run: what it prints is shown by the tests of each verb.
    command.make_context(words, rest).close()


def test_every_reason_of_a_worker_is_listed() -> None:
    for reason in REASONS:
        if reason not in (DeadLetterReason.DAMAGED, DeadLetterReason.UNKNOWN):
            assert f"`{reason}`" in PAGE
