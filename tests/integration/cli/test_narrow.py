"""Every listing at a terminal of 80 columns and 24 rows, and at one of 40.

Names are as long as in practice: a retry topic, a group with a tenant.  Each table keeps its
heading, no line is wider than the terminal, and a line below it names the columns that are missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sharegroup.client import AdminClient, AlterConfig, ConfigResource, NewTopic, ResourceType
from sharegroup.testing import run_broker
from sharegroup.worker.lifecycle import pid_files
from sharegroup.worker.lifecycle.pid_files import PidFile
from tests.integration.cli.conftest import Run, consume, consumer, known, member, produce
from tests.integration.cli.piping import at, sharegroup
from tests.integration.cli.terminal import CTRL_C, ESCAPES, terminal

TOPIC = "eu-west-1.orders.payments-to-confirm.retry.1"
GROUP = "tenant-4711.payments-service-in-the-north"
READER = "tenant-4711.accounting"

WORDS = {
    "topics list": "TOPIC",
    "topics describe": "TOPIC",
    "groups list": "GROUP",
    f"groups describe {GROUP}": "TOPIC",
    f"groups describe {GROUP} --members --verbose": "CONSUMER-ID",
    f"groups describe {GROUP} --state --verbose": ("GROUP", "STATE"),
    f"groups describe {READER} --verbose": "TOPIC",
    f"groups describe {READER} --members --verbose": "CONSUMER-ID",
    f"groups inspect {GROUP}": "PARTITION",
    f"groups reset-offsets {READER}-2 --topic {TOPIC} --to-latest --dry-run": "GROUP",
    f"configs describe --topic {TOPIC} --all": "NAME",
    f"configs describe --group {GROUP}": "NAME",
    "cluster brokers": "ID",
    "cluster controller": "CLUSTER-ID",
    "cluster features": "FEATURE",
    "cluster versions": "REQUEST",
    "users list": "USER",
    f"quotas list --user {READER}": "USER",
    f"dlq list {TOPIC}": "GROUP",
    "jobs list": "ID",
}
"""The heading that each listing begins with; the second one of a narrower terminal."""


@pytest.fixture(scope="module")
def cluster(bootstrap: str) -> Iterator[str]:
    """A broker with a share group and a consumer group whose members stay."""

    async def set_up() -> None:
        settings = [AlterConfig("share.auto.offset.reset", "earliest")]
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(TOPIC, 3)])
            for group in (GROUP, f"{READER}-2"):
                resource = ConfigResource(ResourceType.GROUP, group)
                await admin.incremental_alter_configs({resource: settings})
        await known(bootstrap, TOPIC)
        await produce(bootstrap, TOPIC)
        await consume(bootstrap, GROUP, TOPIC)
        await consume(bootstrap, f"{READER}-2", TOPIC)

    asyncio.run(set_up())
    with member(bootstrap, GROUP, TOPIC), consumer(bootstrap, READER, TOPIC, commit=2):
        yield bootstrap


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("words", list(WORDS))
def test_listing_fits_the_terminal(
    words: str, columns: int, cluster: str, run: Run, tmp_path: Path
) -> None:
    (file := tmp_path / "password").write_text("opensesame")
    run(f"users add {READER} --password-file {file}")
    run(f"quotas set --user {READER} --client-id {GROUP} producer_byte_rate=1000000")
    with terminal(*words.split(), "--bootstrap", cluster, columns=columns) as shown:
        code, _ = shown.end()
        lines = shown.lines
    assert code == 0, lines
    if lines not in (["There are no dead letters."], ["There are no jobs."]):
        assert lines[0].startswith(WORDS[words]), lines
    assert max(map(len, lines)) <= columns, lines


def test_wide_terminal_shows_what_a_pipe_gets(cluster: str, run: Run) -> None:
    words = f"groups describe {GROUP} --members"
    with terminal(*words.split(), "--bootstrap", cluster, columns=200) as shown:
        shown.end()
    assert shown.lines == run(words).out.splitlines()


PARTITIONS = 40
WATCHED = {
    "configs describe --topic tall --all": "NAME",
    "groups describe tall": "GROUP",
    "groups describe reads-tall": "GROUP",
    "groups inspect tall": "PARTITION",
    "dlq list": "TOPIC",
    "worker status": "APP",
}
"""Listings with more lines than a terminal of 24 rows has, and their first headings."""


@pytest.fixture(scope="module")
def tall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A broker, and the folder of the pid files of workers, with more than 24 of everything."""
    with pytest.MonkeyPatch.context() as patch, run_broker() as broker, ExitStack() as stack:
        where = broker.bootstrap_servers
        runtime = str(tmp_path_factory.mktemp("runtime"))
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        for number in range(PARTITIONS):
            file = PidFile(pid_files.folder() / f"app-{number}.{number + 1}")
            stack.callback(file.close)
            file.write({"app": f"app-{number}", "phase": "running", "groups": ["g"]})
        commands = [
            f"topics create tall --partitions {PARTITIONS}",
            *(f"topics create letters-{number}.dead" for number in range(PARTITIONS)),
            "groups reset-offsets tall --topic tall --to-latest --execute",
            "groups reset-offsets reads-tall --type consumer --topic tall --to-latest --execute",
        ]
        for command in commands:
            assert sharegroup(*at(where, command)).code == 0, command
        yield where, runtime


@pytest.mark.parametrize("words", list(WATCHED))
def test_watch_keeps_its_first_lines_in_24_rows(
    words: str, tall: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, runtime = tall
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", where)
    with terminal(*words.split(), "--watch", "0.2") as shown:
        shown.expect("more lines")
        shown.expect("\x1b[H")
        shown.expect("more lines")
        shown.type(CTRL_C)
        code, _ = shown.end()
    assert code == 130
    pictures = [ESCAPES.sub("", text) for text in shown.text.split("\x1b[H")[1:]]
    lines = pictures[0].replace("\r", "").splitlines()
    assert lines[0].startswith("every 0.2 s, last at ")
    assert lines[2].startswith(WATCHED[words]), lines
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_watched_dead_letters_of_a_topic_keep_their_heading(
    tall: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", tall[0])
    sharegroup("produce", "letters-0.dead", stdin=b"no letter of anybody")
    with terminal("dlq", "list", "letters-0.dead", "--watch", "0.2") as shown:
        shown.expect("LETTERS")
        sharegroup("produce", "letters-0.dead", stdin=b"another\nand another")
        shown.expect(" 3 ")
        shown.type(CTRL_C)
        code, _ = shown.end()
    assert code == 130
    assert "Traceback" not in shown.text
