"""Each verb with `--json` says in docs/cli.md which keys it prints."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from sharegroup.cli.main import cli
from tests.docs.write_docs import JSON_KEYS

RECORDS = {
    "consume": "prints a record in a line",
    "produce": "reads a record from a line",
    "tail": "prints a record in a line",
}
"""Verbs whose `--json` is the format of records, which is no listing."""

OTHER_WORDS = {
    "configs describe-quotas": "configs describe --user",
    "configs alter-quotas": "configs alter --user",
}
"""The words by which users call a hidden verb."""


def verbs(command: click.Command, words: str = "") -> Iterator[tuple[str, click.Command]]:
    """All verbs without verbs below them, also hidden ones, with the words that call them."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from verbs(inner, f"{words} {name}".strip())


PRINTERS = {
    OTHER_WORDS.get(words, words)
    for words, command in verbs(cli)
    if any("--json" in option.opts for option in command.params) and words not in RECORDS
}


@pytest.mark.parametrize("words", sorted(PRINTERS))
def test_verb_with_json_says_its_keys(words: str) -> None:
    assert words in JSON_KEYS


@pytest.mark.parametrize("words", JSON_KEYS)
def test_keys_are_those_of_a_verb_with_json(words: str) -> None:
    verbs_with_json = PRINTERS | RECORDS.keys()
    assert any(words == verb or words.startswith(f"{verb} --") for verb in verbs_with_json)
