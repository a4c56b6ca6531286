"""The keys that docs/cli.md promises are those that the verbs print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.write_docs import JSON_KEYS
from tests.integration.cli.conftest import Run, member

WORDS = {
    "groups list": "groups list",
    "groups describe": "groups describe {name}",
    "groups describe --members": "groups describe {name} --members",
    "groups describe --state": "groups describe {name} --state",
    "groups inspect": "groups inspect {name}",
    "groups delete": "groups delete {name}",
    "groups pause": "groups pause {name}",
    "groups resume": "groups resume {name}",
    "groups delete-offsets": "groups delete-offsets {name} --topic {name}",
    "groups reset-offsets": "groups reset-offsets {name} --all-topics --to-latest --dry-run",
    "cluster brokers": "cluster brokers",
    "cluster controller": "cluster controller",
    "cluster features": "cluster features",
    "cluster versions": "cluster versions",
    "ping": "ping",
    "topics list": "topics list",
    "topics describe": "topics describe {name}",
    "topics create": "topics create {name}.new",
    "topics alter": "topics alter {name} --partitions 2",
    "topics delete": "topics delete {name}",
    "topics delete-records": "topics delete-records --topic {name} --before 0",
    "configs describe": "configs describe --topic {name} --all",
    "configs alter": "configs alter --topic {name} --set retention.ms=1000",
    "configs describe --user": "configs describe --user {name}",
    "configs alter --user": "configs alter --user {name} --add-config producer_byte_rate=1000000",
    "users list": "users list {name}",
    "users add": "users add {name} --password-file {file}",
    "users remove": "users remove {name}",
    "quotas list": "quotas list --user {name}",
    "quotas set": "quotas set --user {name} producer_byte_rate=1000000",
    "quotas remove": "quotas remove --user {name}",
    "dlq list": "dlq list {name}",
    "dlq show": "dlq show {name}",
    "dlq redrive": "dlq redrive {name}",
    "dlq purge": "dlq purge {name} --all --dry-run",
}

BEFORE = {
    "configs describe --user": "quotas set",
    "users list": "users add",
    "users remove": "users add",
    "quotas list": "quotas set",
}
"""What has to be there before a verb has something to print."""

ELSEWHERE = ("acls ", "data ", "jobs ", "logs", "perf ", "retries ", "schedules ", "worker ")
ALONE = ("top",)
"""Verbs that need another broker or more, and are held to the document where they are tested."""


def keys_of(printed: Any) -> list[str]:
    return list(printed[0] if isinstance(printed, list) else printed)


def promised(verb: str) -> list[str]:
    """The keys of a line in the document, without what is explained in brackets."""
    outside = "".join(part.rpartition(")")[2] for part in JSON_KEYS[verb].split("("))
    return outside.split()


def test_every_verb_of_the_document_is_tried() -> None:
    tried = {verb for verb in JSON_KEYS if not verb.startswith(ELSEWHERE) and verb not in ALONE}
    assert set(WORDS) == tried


@pytest.mark.parametrize("verb", list(WORDS))
def test_printed_keys_agree_with_the_document(
    verb: str, consumed: str, run: Run, bootstrap: str, tmp_path: Path
) -> None:
    (file := tmp_path / "password").write_text("opensesame")
    if verb in BEFORE:
        assert run(WORDS[BEFORE[verb]].format(name=consumed, file=file)).code == 0
    words = WORDS[verb].format(name=consumed, file=file) + " --json"
    if "--members" in verb:
        with member(bootstrap, consumed, consumed):
            printed = run(words)
    else:
        printed = run(words)
    assert printed.code == 0, printed.err
    assert keys_of(printed.rows) == promised(verb)
