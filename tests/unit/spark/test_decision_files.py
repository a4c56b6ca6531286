"""Decisions on their way from foreachBatch to the reader."""

from __future__ import annotations

import json
import os
from pathlib import Path
from uuid import UUID

import pytest

from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.decision_files import (
    KEPT_SECONDS,
    Decided,
    DecisionFiles,
    folder_of,
    write_decisions,
)
from sharegroup.spark.offsets import StreamOffset, Subscription

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
TOPIC = TopicId(UUID(int=1))
KEY = TopicIdPartition(TOPIC, 0)
ORDERS_0 = ("orders", 0)


def batch(seq: int, first: int, end: int, *, query: str = "q", load: str = "load") -> StreamOffset:
    return StreamOffset(
        Subscription("g/1", ("orders",)),
        seq,
        query,
        load,
        {KEY: (AcquiredRecords.of_range(first, end, 1),)},
        names={TOPIC: TopicName("orders")},
    )


def decide(location: Path, decided: Decided, *, load: str = "load") -> Path:
    return write_decisions(folder_of(str(location), "g/1", load), decided)


def files(location: Path, *, load: str = "load") -> DecisionFiles:
    return DecisionFiles(str(location), "g/1", load)


def names(location: Path) -> list[str]:
    """Without the hash."""
    found = (path.name.split(".") for path in location.rglob("*") if path.is_file())
    return sorted(".".join(parts[:-2]) for parts in found)


def ranges(*some: tuple[int, int]) -> OffsetSet:
    return OffsetSet.of(some)


def test_decision_is_found_by_its_offsets(tmp_path: Path) -> None:
    decide(
        tmp_path, {ORDERS_0: {REJECT: ranges((12, 14))}, ("other", 0): {RELEASE: ranges((1, 2))}}
    )
    assert files(tmp_path).outcomes(batch(1, 10, 20)) == {KEY: {REJECT: ranges((12, 14))}}


def test_a_batch_without_decisions_has_no_outcomes(tmp_path: Path) -> None:
    assert files(tmp_path / "missing").outcomes(batch(1, 10, 20)) == {}
    decide(tmp_path, {ORDERS_0: {REJECT: ranges((30, 31))}})
    assert files(tmp_path).outcomes(batch(1, 10, 20)) == {}


def test_decision_and_its_new_folders_are_on_disk_before_the_batch_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, list[str]]] = []

    def sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        synced.append((path, os.listdir(path) if os.path.isdir(path) else []))

    monkeypatch.setattr(os, "fsync", sync)
    location = tmp_path / "decisions"
    written = decide(location, {ORDERS_0: {REJECT: ranges((0, 1))}})
    folders = [written.parent, written.parent.parent, location, tmp_path]
    assert [path for path, _ in synced[1:]] == [str(folder.resolve()) for folder in folders]
    assert [names for _, names in synced[1:]] == [
        [written.name],
        [written.parent.name],
        [written.parent.parent.name],
        [location.name],
    ]
    synced.clear()
    again = decide(location, {ORDERS_0: {REJECT: ranges((1, 2))}})
    assert [path for path, _ in synced[1:]] == [str(again.parent.resolve())]


def test_reject_beats_release_and_release_beats_accept(tmp_path: Path) -> None:
    decide(tmp_path, {ORDERS_0: {ACCEPT: ranges((10, 20)), RELEASE: ranges((12, 16))}})
    decide(tmp_path, {ORDERS_0: {REJECT: ranges((14, 18))}})
    assert files(tmp_path).outcomes(batch(1, 10, 20)) == {
        KEY: {
            REJECT: ranges((14, 18)),
            RELEASE: ranges((12, 14)),
            ACCEPT: ranges((10, 12), (18, 20)),
        }
    }


def test_a_decision_is_read_again_for_the_same_batch_and_never_for_the_next(
    tmp_path: Path,
) -> None:
    """A record released in batch 1 is redelivered in batch 2, which has no decision for it."""
    decide(tmp_path, {ORDERS_0: {RELEASE: ranges((12, 13))}})
    released = {KEY: {RELEASE: ranges((12, 13))}}
    assert files(tmp_path).outcomes(batch(1, 10, 20)) == released
    assert names(tmp_path) == ["q.1"]
    assert files(tmp_path).outcomes(batch(1, 10, 20)) == released, "after a crash"
    assert files(tmp_path).outcomes(batch(2, 12, 25)) == {}
    assert names(tmp_path) == []


def test_a_batch_that_is_run_again_writes_the_same_file(tmp_path: Path) -> None:
    decided = {ORDERS_0: {RELEASE: ranges((12, 13))}}
    assert decide(tmp_path, decided) == decide(tmp_path, decided)
    assert len(list(tmp_path.rglob("*.json"))) == 1


def test_after_a_restart_decisions_of_both_runs_count(tmp_path: Path) -> None:
    """The batch was acquired by one load(), committed, and is acknowledged by the next one."""
    decide(tmp_path, {ORDERS_0: {REJECT: ranges((12, 13))}}, load="first")
    decide(tmp_path, {ORDERS_0: {RELEASE: ranges((15, 16))}}, load="second")
    outcomes = files(tmp_path, load="second").outcomes(batch(1, 10, 20, load="first"))
    assert outcomes == {KEY: {REJECT: ranges((12, 13)), RELEASE: ranges((15, 16))}}


def test_another_query_of_the_same_load_keeps_its_files(tmp_path: Path) -> None:
    decide(tmp_path, {ORDERS_0: {REJECT: ranges((12, 13))}})
    assert files(tmp_path).outcomes(batch(1, 10, 20, query="one")) != {}
    assert files(tmp_path).outcomes(batch(5, 10, 20, query="two")) == {}
    assert names(tmp_path) == ["one.1"]


def test_files_of_abandoned_queries_are_removed(tmp_path: Path) -> None:
    old = decide(tmp_path, {ORDERS_0: {REJECT: ranges((1, 2))}}, load="old")
    decide(tmp_path, {ORDERS_0: {REJECT: ranges((1, 2))}}, load="new")
    long_ago = old.stat().st_mtime - KEPT_SECONDS - 60
    os.utime(old.parent, (long_ago, long_ago))
    files(tmp_path).remove_old()
    new = Path(folder_of(str(tmp_path), "g/1", "new"))
    assert [path.parent for path in tmp_path.rglob("*.json")] == [new]


def test_a_file_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    path = decide(tmp_path, {ORDERS_0: {REJECT: ranges((1, 2))}})
    path.write_text(json.dumps({"v": 2}))
    with pytest.raises(ValueError, match=rf"{path.name}: decisions of version 2; expected 1"):
        files(tmp_path).outcomes(batch(1, 0, 5))


@pytest.mark.parametrize("name", ["..", ".", "", "../..", "/", "a/b", "\x00", "\udc80", "g" * 5000])
def test_any_group_and_load_stay_inside_the_location(tmp_path: Path, name: str) -> None:
    location = tmp_path / "decisions"
    neighbour = tmp_path / "neighbour" / "old"
    neighbour.mkdir(parents=True)
    os.utime(neighbour, (0, 0))
    for group, load in ((name, "load"), ("billing", name)):
        folder = folder_of(str(location), group, load)
        assert Path(folder).resolve().parent.parent == location
        path = write_decisions(folder, {ORDERS_0: {REJECT: ranges((12, 14))}})
        assert path.is_file()
        reader = DecisionFiles(str(location), group, load)
        assert reader.outcomes(batch(1, 10, 20, load=load)) == {KEY: {REJECT: ranges((12, 14))}}
        reader.remove_old()
    assert neighbour.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decisions", "neighbour"]


def test_groups_with_different_names_have_different_folders(tmp_path: Path) -> None:
    names = ["a", "A", "a/", "..", "%2E%2E", "a\udc80"]
    assert len({folder_of(str(tmp_path), name, "load") for name in names}) == len(names)


def test_symbolic_link_out_of_the_location_is_refused(tmp_path: Path) -> None:
    location, elsewhere = tmp_path / "decisions", tmp_path / "elsewhere"
    elsewhere.mkdir()
    location.mkdir()
    group_folder = Path(folder_of(str(location), "billing", "load")).parent
    group_folder.symlink_to(elsewhere)
    with pytest.raises(ValueError, match="is outside of"):
        folder_of(str(location), "billing", "load")
    with pytest.raises(ValueError, match="is outside of"):
        DecisionFiles(str(location), "billing", "load").remove_old()
