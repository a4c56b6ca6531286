"""``sharegroup data check`` and ``repair``: they see what the broker does, and help it to start."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from sharegroup.cli.broker.data import check as check_verb
from sharegroup.client import (
    AdminClient,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicDescription,
    TopicPartition,
)
from sharegroup.errors import InvalidRequest, KafkaStorageError
from sharegroup.testing import run_broker
from tests.integration.cli.piping import Piped, sharegroup
from tests.integration.cli.test_json_keys import keys_of, promised

JOURNAL = "catalog.journal"
RECORDS = 3
OTHER_USER = 54321
"""The id of no user of any machine."""


async def fill(bootstrap: str, topic: str, partitions: int) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=partitions)])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for partition in range(partitions):
            for number in range(RECORDS):
                await producer.send(topic, b"%d" % number, partition=partition)
        await producer.flush()


def make(data: Path, topic: str = "orders", partitions: int = 2) -> None:
    with run_broker(data=str(data)) as broker:
        asyncio.run(fill(broker.bootstrap_servers, topic, partitions))


def ends(data: Path) -> dict[str, list[int]]:
    """A broker starts here; the end offsets of the partitions of users' topics."""

    async def ask(bootstrap: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            for topic in sorted(await admin.list_topics()):
                described = (await admin.describe_topics([topic]))[topic]
                assert isinstance(described, TopicDescription)
                wanted = [
                    TopicPartition(topic, partition.partition) for partition in described.partitions
                ]
                offsets = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
                found[topic] = [offsets[key].offset for key in wanted]
        return found

    with run_broker(data=str(data)) as broker:
        return asyncio.run(ask(broker.bootstrap_servers))


def check(data: Path) -> list[dict[str, str]]:
    printed = sharegroup("data", "check", "--data", str(data), "--json")
    found: list[dict[str, str]] = json.loads(printed.out)
    assert printed.code == (1 if found else 0)
    assert all(list(row) == promised("data check") for row in found)
    return found


def repair(data: Path, *options: str) -> Piped:
    return sharegroup("data", "repair", "--data", str(data), *options)


def files(data: Path) -> dict[str, bytes]:
    """All but the lock, which says who had it last."""
    paths = [path for path in data.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(data)): path.read_bytes() for path in paths}


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_first(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)


def flip_last(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def tear_first(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def test_a_sound_directory_has_no_findings_and_needs_no_repair(tmp_path: Path) -> None:
    make(tmp_path)
    before = files(tmp_path)
    assert check(tmp_path) == []
    assert repair(tmp_path, "--execute").out == b"There is nothing to repair.\n"
    assert files(tmp_path) == before


def test_a_running_broker_is_named(tmp_path: Path) -> None:
    with run_broker(data=str(tmp_path)):
        printed = sharegroup("data", "check", "--data", str(tmp_path))
    assert printed.code == 1
    assert "a broker is using" in printed.err
    assert "stop it first" in printed.err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may become another user")
def test_directory_of_another_user_is_named_with_who_may_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # Another user may not go through the folders above.
    repair(tmp_path, "--execute")  # Imports what another user may not read.
    os.seteuid(OTHER_USER)
    try:
        printed = CliRunner().invoke(check_verb, ["--data", "."])
    finally:
        os.seteuid(0)
    assert isinstance(printed.exception, InvalidRequest)
    assert str(printed.exception).startswith(f"this user may not use the data directory {tmp_path}")
    assert "run the command as the user of its broker, or as root" in str(printed.exception)


@pytest.mark.parametrize("damage", [remove, empty, flip_first, tear_first])
def test_a_lost_or_damaged_catalog_is_made_from_the_folders(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    make(tmp_path)
    damage(tmp_path / JOURNAL)
    before = files(tmp_path)
    assert "refuses to start" in [finding["at_start"] for finding in check(tmp_path)]
    with pytest.raises(KafkaStorageError, match="sharegroup data check --data"):
        ends(tmp_path)
    planned = repair(tmp_path, "--dry-run")
    assert planned.code == 0
    assert files(tmp_path) == before, "neither a check, nor a refused start, nor a plan changes it"
    done = repair(tmp_path, "--execute", "--json")
    assert [row["change"] for row in json.loads(done.out)]
    assert keys_of(json.loads(done.out)) == promised("data repair")
    after = files(tmp_path)
    kept = [content for name, content in after.items() if name.startswith("set-aside/")]
    assert before.get(JOURNAL) in (None, b"", *kept)
    assert {name: after[name] for name in before if "/" in name} == {
        name: content for name, content in before.items() if "/" in name
    }
    assert check(tmp_path) == []
    assert ends(tmp_path) == {"orders": [RECORDS, RECORDS]}


def test_an_older_catalog_gets_the_missing_topics_and_partitions(tmp_path: Path) -> None:
    async def grow(bootstrap: str) -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_partitions({"orders": 3})
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send("orders", b"0", partition=2)

    make(tmp_path)
    older = (tmp_path / JOURNAL).read_bytes()
    make(tmp_path, "payments", 1)
    with run_broker(data=str(tmp_path)) as broker:
        asyncio.run(grow(broker.bootstrap_servers))
    (tmp_path / JOURNAL).write_bytes(older)
    assert {finding["repair"] for finding in check(tmp_path)} == {
        "adds it to the catalog",
        "uses the present file",
    }
    assert repair(tmp_path, "--execute").code == 0
    assert ends(tmp_path) == {"orders": [RECORDS, RECORDS, 1], "payments": [RECORDS]}


def test_topics_that_were_restored_keep_their_records(tmp_path: Path) -> None:
    """Their own settings are lost; the broker's retention must not delete anything."""
    make(tmp_path)
    (tmp_path / JOURNAL).unlink()
    assert repair(tmp_path, "--execute").code == 0
    with run_broker(data=str(tmp_path)) as broker:
        printed = sharegroup(
            "configs",
            "describe",
            "--topic",
            "orders",
            "--bootstrap",
            broker.bootstrap_servers,
            "--json",
        )
    values = {row["name"]: row["value"] for row in json.loads(printed.out)}
    assert (values["retention.ms"], values["retention.bytes"]) == ("-1", "-1")
    assert values["cleanup.policy"] == "delete"


def test_a_folder_without_metadata_gets_a_name_from_its_id(tmp_path: Path) -> None:
    make(tmp_path, partitions=1)
    [metadata] = [
        path for path in tmp_path.glob("*-0/partition.metadata") if "orders" in path.read_text()
    ]
    metadata.unlink()
    (tmp_path / JOURNAL).unlink()
    assert repair(tmp_path, "--execute").code == 0
    topic_id = metadata.parent.name.removesuffix("-0")
    assert ends(tmp_path) == {f"recovered-{topic_id}": [RECORDS]}


@pytest.mark.parametrize("file", [JOURNAL, "meta.properties"])
def test_the_file_of_another_broker_is_moved_aside(tmp_path: Path, file: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    make(ours)
    make(theirs, "payments")
    shutil.copy(theirs / file, ours / file)
    foreign = (ours / file).read_bytes()
    assert "refuses to start" in [finding["at_start"] for finding in check(ours)]
    assert repair(ours, "--execute").code == 0
    assert foreign in [path.read_bytes() for path in ours.glob("set-aside/*/*")]
    assert ends(ours) == {"orders": [RECORDS, RECORDS]}


def test_a_folder_of_another_topic_is_moved_aside_and_can_be_put_back(tmp_path: Path) -> None:
    make(tmp_path, partitions=1)
    make(tmp_path, "payments", 1)
    folders = [path.parent for path in tmp_path.glob("*-0/partition.metadata")]
    orders, payments = (
        next(path for path in folders if topic in (path / "partition.metadata").read_text())
        for topic in ("orders", "payments")
    )
    shutil.move(orders, tmp_path / "saved")
    shutil.copytree(payments, orders)
    assert repair(tmp_path, "--execute").code == 0
    assert ends(tmp_path) == {"orders": [RECORDS], "payments": [RECORDS]}, "no offset twice"
    [entry] = tmp_path.glob("set-aside/*-repair")
    assert (entry / orders.name / "partition.metadata").exists()
    shutil.move(tmp_path / "saved", entry / "of-an-operator" / orders.name)
    refused = repair(tmp_path, "--put-back", str(tmp_path / "saved"), "--execute")
    assert (refused.code, "is not a partition folder below" in refused.err) == (1, True)
    back = entry / "of-an-operator" / orders.name
    assert repair(tmp_path, "--put-back", str(back), "--dry-run").code == 0
    assert repair(tmp_path, "--put-back", str(back), "--execute").code == 0
    again = repair(tmp_path, "--put-back", str(entry / orders.name), "--execute")
    assert (again.code, "its offsets are in use" in again.err) == (1, True)
    assert ends(tmp_path) == {"orders": [RECORDS], "payments": [RECORDS]}


def test_damaged_records_are_reported_with_the_reaction_of_the_broker(tmp_path: Path) -> None:
    make(tmp_path, partitions=1)
    [path] = [
        path
        for path in tmp_path.glob("*-0/*.log")
        if "orders" in (path.parent / "partition.metadata").read_text()
    ]
    flip_last(path)
    [finding] = check(tmp_path)
    assert finding["file"] == f"{path.parent.name}/{path.name}"
    assert finding["at_start"].startswith("answers CORRUPT_MESSAGE for offset")
    printed = sharegroup("data", "check", "--data", str(tmp_path), "--skip-records")
    assert (printed.code, printed.out) == (0, b"No problems were found.\n")


def test_a_damaged_segment_of_compaction_is_reported_with_the_reaction_of_the_broker(
    tmp_path: Path,
) -> None:
    make(tmp_path, partitions=1)
    [path] = [
        path
        for path in tmp_path.glob("*-0/*.log")
        if "orders" in (path.parent / "partition.metadata").read_text()
    ]
    swap = path.with_name(path.name + ".swap")
    swap.write_bytes(path.read_bytes())
    assert check(tmp_path) == []  # The next start completes the swap.
    swap.write_bytes(path.read_bytes()[:30])
    [finding] = check(tmp_path)
    assert finding["file"] == f"{swap.parent.name}/{swap.name}"
    assert "does not begin with a record batch; it has 30 bytes" in finding["problem"]
    assert finding["at_start"] == "sets it aside, in set-aside"
    held = ends(tmp_path)
    assert not swap.exists()
    path.unlink()
    swap.write_bytes(b"")
    [finding] = check(tmp_path)
    assert finding["at_start"] == "does not serve the partition"
    assert held == {"orders": [RECORDS]}


def test_repair_needs_exactly_one_of_dry_run_and_execute(tmp_path: Path) -> None:
    assert repair(tmp_path).code == 2
    assert repair(tmp_path, "--dry-run", "--execute").code == 2


@pytest.mark.parametrize("verb", [("check",), ("repair", "--dry-run")])
def test_folder_that_is_no_data_directory_is_refused_and_stays_as_it_is(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    """A mistyped path must not look healthy, nor get a lock file."""
    (tmp_path / "letter.txt").write_text("hello")
    done = sharegroup("data", *verb, "--data", str(tmp_path))
    assert done.code == 1
    assert f"{tmp_path} is not a data directory" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("kept", [".lock", "catalog.journal", "meta.properties", "a partition"])
def test_data_directory_is_recognized_by_any_of_its_files(tmp_path: Path, kept: str) -> None:
    data = tmp_path / "data"
    make(data)
    for path in list(data.iterdir()):
        if path.name == kept or (kept == "a partition" and path.is_dir()):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "is not a data directory" not in sharegroup("data", "check", "--data", str(data)).err
