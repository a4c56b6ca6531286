"""Consoles that share their history in topics of the cluster, or keep it in a file."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest

from sharegroup.client import (
    AclOperation,
    AclResourceType,
    AdminClient,
    Producer,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.console.application import Console
from sharegroup.console.remember.blocks import GroupPoints, packed
from sharegroup.console.remember.history_file import HistoryFile
from sharegroup.console.remember.shared_history import GROUP
from sharegroup.console.remember.topics import create_topics
from sharegroup.console.watch.attention import attention
from sharegroup.console.watch.cluster_view import ClusterView
from sharegroup.console.watch.history import Columns, Tier
from sharegroup.testing import Security, broker
from tests.integration.console.access_scene import allowed, make_groups
from tests.integration.console.remembering_scene import (
    SECONDS,
    blocks_in,
    remembering,
    seconds_of,
    take_over,
    until,
)


def view_of(console: Console) -> ClusterView:
    """What a console sees, which only its pages show."""
    assert console._watcher is not None
    return console._watcher.view


@pytest.mark.slow
def test_restart_shows_the_points_of_the_console_before() -> None:
    """Neither its topics nor its group need attention."""

    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            async with remembering(there.client_options()) as console:

                async def has_written() -> bool:
                    return bool((await blocks_in(there.client_options()))[0])

                await until(has_written)
                before = seconds_of(console)
            async with remembering(there.client_options()) as console:
                await until(lambda: seconds_of(console)[: len(before)] == before)
                await until(lambda: f"{SECONDS.name}" in view_of(console).topics)
                await until(lambda: GROUP in view_of(console).groups)
                await until(lambda: len(seconds_of(console)) > len(before))
                problems = attention(view_of(console), console.history, now_ms=0)
                assert [each for each in problems if "sharegroup.console" in each.subject] == []
                assert len(console.history.of("billing").minutes) >= 1

    asyncio.run(run())


@pytest.mark.slow
def test_second_console_takes_over_from_one_that_was_killed(tmp_path: Path) -> None:
    """What both have seen is there after a restart."""

    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            points = await take_over(there.bootstrap_servers, "billing", tmp_path / "log")
            async with remembering(there.client_options()) as third:
                await until(lambda: seconds_of(third)[: len(points)] == points)

    asyncio.run(run())


@pytest.mark.slow
def test_without_rights_it_says_what_it_lacks_and_goes_on() -> None:
    security = Security(
        users={"console": "its own secret", "root": "all"},
        acls=[
            *allowed("console", AclResourceType.TOPIC, "*", AclOperation.READ),
            *allowed("console", AclResourceType.GROUP, "*", AclOperation.READ),
            *allowed("console", AclResourceType.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE),
            *allowed("root", AclResourceType.TOPIC, "*", AclOperation.ALL),
            *allowed("root", AclResourceType.GROUP, "*", AclOperation.ALL),
            *allowed("root", AclResourceType.CLUSTER, "kafka-cluster", AclOperation.ALL),
        ],
    )

    async def run() -> None:
        async with (
            broker(security=security) as there,
            AdminClient(**there.client_options("root")) as admin,
        ):
            await make_groups(there, "root")
            async with remembering(there.client_options("console")) as console:
                await until(lambda: "history" in view_of(console).problems)
                text = view_of(console).problems["history"]
                assert "it needs CREATE, DESCRIBE, READ and WRITE" in text
                assert SECONDS.name in text
                await until(lambda: len(seconds_of(console)) >= 2)
                kind = AclResourceType.TOPIC
                operations = (AclOperation.CREATE, AclOperation.WRITE)
                await admin.create_acls(allowed("console", kind, "*", *operations))
                await until(lambda: "history" not in view_of(console).problems)

    asyncio.run(run())


def test_blocks_of_others_are_passed_over_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = int(time.time() * 1000)
    # The slot before, because points after now are those of a clock that was set back.
    slot_ms = now_ms - now_ms % SECONDS.slot_ms - SECONDS.slot_ms

    def block(slot_ms: int, *times: int, tier: Tier = Tier.SECONDS) -> bytes:
        points = Columns(
            array("q", times), array("q", [5] * len(times)), array("q", range(len(times)))
        )
        return next(iter(packed(tier, slot_ms, [GroupPoints("billing", points)])))

    good = block(slot_ms, slot_ms, slot_ms + 1000)
    hour_ms = 60 * 60 * 1000
    values = (
        None, b"", b"{}", good, good[:-1],
        block(slot_ms, slot_ms - 1),
        block(slot_ms, slot_ms + SECONDS.slot_ms),
        block(slot_ms, slot_ms, tier=Tier.MINUTES),
        block(slot_ms + hour_ms, slot_ms + hour_ms),
        block(slot_ms - 3 * hour_ms, slot_ms - 3 * hour_ms),
        good,
    )  # fmt: skip

    async def run() -> None:
        async with broker() as there:
            cluster = Cluster(config_from(ReadingConfig, {**there.client_options()}))
            await create_topics(cluster)
            cluster.close()
            async with Producer(**there.client_options()) as producer:
                for value in values:
                    await producer.send_and_wait(SECONDS.name, value, partition=0)
            points, passed_over = await blocks_in(there.client_options())
            assert (len(points), passed_over) == (4, 9)
            await make_groups(there)
            async with remembering(there.client_options()) as console:
                await until(lambda: [point.lag for point in seconds_of(console)][:2] == [5, 5])
                await until(lambda: len(seconds_of(console)) > 2)

    asyncio.run(run())
    assert "event=console.blocks_passed_over topic=__sharegroup.console.seconds count=9" in (
        caplog.text
    )


@pytest.mark.slow
def test_history_is_in_the_users_folder_unless_it_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            words = ["--bootstrap-server", there.bootstrap_servers, "--port", "0"]
            console = [sys.executable, "-m", "sharegroup", "console", *words]
            files = {
                (): tmp_path / "sharegroup" / f"console-{there.cluster_id}.history",
                ("--history", str(tmp_path / "mine")): tmp_path / "mine",
            }
            for options, file in files.items():
                process = await asyncio.create_subprocess_exec(
                    *console, *options,
                    stderr=subprocess.PIPE,
                    env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
                )  # fmt: skip
                assert process.stderr is not None
                async for line in process.stderr:
                    if b"event=console.history_read" in line:
                        break
                process.terminate()
                await process.communicate()
                assert process.returncode == 0
                list(HistoryFile(file, there.cluster_id).blocks())

    asyncio.run(run())
