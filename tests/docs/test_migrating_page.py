"""docs/migrating.md: what it shows runs, and what it names is there.

`make docs-test` also runs its commands, with a broker and a worker in processes of their own.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sharegroup.cli.main import cli
from sharegroup.client import Producer
from sharegroup.testing import run_broker
from sharegroup.worker import App, Record, Retry
from sharegroup.worker.declarations.foreign_options import ELSEWHERE
from sharegroup.worker.declarations.options import RouteOptions
from sharegroup.worker.events import EVENTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "migrating.md").read_text()
OURS = [
    snippet
    for snippet in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    if "sharegroup" in snippet
]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
OTHERS = {"partitions", "lifespan", "grace", "delay", "handler", "topics"}
"""Words of ours with a value that are no options of `share_group` beside the group's own."""
SECONDS_MAX = 60.0


HANDLERS = {"celery": ["bill"], "one group": ["send_mail", "make_thumbnail"], "consumer": ["bill"]}


@pytest.mark.parametrize(
    ("code", "handlers"), [*zip(OURS, HANDLERS.values(), strict=True)], ids=HANDLERS
)
def test_examples_run(code: str, handlers: list[str]) -> None:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, "docs/migrating.md", "exec"), names)
    assert [route.shape.name for route in names["app"].route_list] == handlers


def test_documented_options_exist() -> None:
    policy = set(Retry.__dataclass_fields__)
    named = {word for row in ROWS for word in re.findall(r"\b(\w+)=", row[1])}
    assert named - policy - OTHERS - RouteOptions.__annotations__.keys() == set()


def test_documented_record_attributes_and_events_exist() -> None:
    named = set(re.findall(r"record\.(\w+)", PAGE))
    events = {name.removeprefix("record.") for name in EVENTS}
    assert {name for name in named - events if not hasattr(Record, name)} == set()
    assert set(re.findall(r'app\.on\("([^"]+)"', PAGE)) - EVENTS.keys() == set()


@pytest.mark.parametrize(
    "word",
    [
        *("autoretry_for", "max_retries", "acks_late", "time_limit", "countdown", "priority"),
        *("seek", "resume", "max_poll_records", "enable_auto_commit", "auto_offset_reset"),
        *("virtual_partitions", "long_running_job", "throttling", "manual_offset_management"),
    ],
)
def test_name_of_another_library_is_refused_by_the_code_and_on_the_page(word: str) -> None:
    assert word in ELSEWHERE
    assert word in PAGE or word.replace("_", ".") in PAGE or "priorit" in word


def test_groups_become_one_and_keep_their_positions(tmp_path: Path) -> None:
    """Two groups have handled all records but one each: the group that follows gets these two."""
    (merging,) = re.findall(r"```sh\n(for group.*?)```", PAGE, re.DOTALL)
    (declared,) = [code for code in OURS if "make_thumbnail" in code]
    topics, seen = ("mail", "thumbnails"), list[str]()
    (tmp_path / "tasks.py").write_text(declared)

    async def work(app: App, count: int) -> None:
        done = asyncio.Event()
        app.on("record.succeeded", lambda _: done.set() if len(seen) == count else None)
        async with asyncio.timeout(SECONDS_MAX), app:
            await done.wait()

    async def fill(bootstrap: str, *values: str) -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for topic in topics:
                for value in values:
                    await producer.send_and_wait(topic, f"{topic} {value}".encode(), partition=0)

    def declare(app: App, groups: dict[str, str]) -> None:
        for topic, group in groups.items():

            @app.share_group(group, topics=topic, name=topic)
            async def note(text: str) -> None:
                seen.append(text)

    with run_broker() as broker:
        bootstrap = broker.bootstrap_servers
        old, new = App("tasks", bootstrap_servers=bootstrap), App("t", bootstrap_servers=bootstrap)
        declare(old, {topic: topic for topic in topics})
        declare(new, dict.fromkeys(topics, "tasks"))
        asyncio.run(fill(bootstrap, "1", "2"))
        asyncio.run(work(old, 4))
        asyncio.run(fill(bootstrap, "3"))
        seen.clear()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", "-euc", merging],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "SHAREGROUP_BOOTSTRAP": bootstrap},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout
        deleted = r"^surplus +topic +thumbnails\.retry\.6h .* deleted$"
        assert re.search(deleted, ended.stdout, re.MULTILINE), ended.stdout
        asyncio.run(work(new, 2))
    assert sorted(seen) == ["mail 3", "thumbnails 3"]


def test_position_of_a_consumer_group_is_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five records the old consumer handled three: the page's command leaves two."""
    (command,) = re.findall(r"^\$ (sharegroup groups reset.+)$", PAGE, re.MULTILINE)
    group = shlex.split(command)[3]
    app, seen = App("orders-service"), list[str]()

    @app.share_group(group, topics="orders")
    async def note(text: str) -> None:
        seen.append(text)

    async def fill(bootstrap: str) -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(5):
                await producer.send_and_wait("orders", b"%d" % number, partition=0)

    async def work() -> None:
        done = asyncio.Event()
        app.on("record.succeeded", lambda _: done.set() if len(seen) == 2 else None)
        async with asyncio.timeout(SECONDS_MAX), app:
            await done.wait()

    monkeypatch.chdir(tmp_path)
    Path("position.csv").write_text("orders,0,3\n")
    with run_broker() as broker:
        asyncio.run(fill(broker.bootstrap_servers))
        ended = CliRunner().invoke(
            cli, [*shlex.split(command)[1:], "--bootstrap-server", broker.bootstrap_servers]
        )
        assert ended.exit_code == 0, ended.output
        app.bootstrap_servers = broker.bootstrap_servers
        asyncio.run(work())
    assert sorted(seen) == ["3", "4"]
