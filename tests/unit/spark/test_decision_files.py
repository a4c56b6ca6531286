"""Decisions on their way from foreachBatch to the reader."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from sharegroup.client.share.session.acknowledgements import released_after
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.errors import InvalidConfig
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.decision_files import (
    Decided,
    DecisionFiles,
    DecisionsMissing,
    default_location,
    folder_of,
    write_decisions,
)
from sharegroup.spark.java import set_default_java
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


def test_longest_delay_of_a_released_record_counts(tmp_path: Path) -> None:
    """A delay beats the group's, also a delay of 0; a reject beats all of them."""
    at_once, later = released_after(0), released_after(30_000)
    decide(tmp_path, {ORDERS_0: {RELEASE: ranges((10, 16)), later: ranges((12, 14))}})
    decide(tmp_path, {ORDERS_0: {at_once: ranges((11, 13)), REJECT: ranges((13, 14))}})
    assert files(tmp_path).outcomes(batch(1, 10, 20)) == {
        KEY: {
            REJECT: ranges((13, 14)),
            later: ranges((12, 13)),
            at_once: ranges((11, 12)),
            RELEASE: ranges((10, 11), (14, 16)),
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


def test_after_two_restarts_decisions_of_the_run_in_between_count(tmp_path: Path) -> None:
    """Run 1 logs the batch and dies; run 2 decides, commits and dies; run 3 acknowledges it."""
    files(tmp_path, load="second").announce("q")
    decide(tmp_path, {ORDERS_0: {RELEASE: ranges((12, 13))}}, load="second")
    decide(tmp_path, {ORDERS_0: {REJECT: ranges((15, 16))}}, load="of another query")
    third = files(tmp_path, load="third")
    assert third.outcomes(batch(1, 10, 20, load="first")) == {KEY: {RELEASE: ranges((12, 13))}}
    third.outcomes(batch(2, 20, 30, load="third"))
    assert not Path(folder_of(str(tmp_path), "g/1", "second")).exists()


def test_another_query_of_the_same_load_keeps_its_files(tmp_path: Path) -> None:
    decide(tmp_path, {ORDERS_0: {REJECT: ranges((12, 13))}})
    assert files(tmp_path).outcomes(batch(1, 10, 20, query="one")) != {}
    assert files(tmp_path).outcomes(batch(5, 10, 20, query="two")) == {}
    assert names(tmp_path) == ["one.1"]


def test_decisions_about_records_that_another_query_holds_by_now_count_for_both(
    tmp_path: Path,
) -> None:
    """The locks of some records of query one ended, and query two of the same load() got them.

    Query two settles first. It must neither take the decisions about the other records away, nor
    apply those about its own twice.
    """
    decide(tmp_path, {ORDERS_0: {REJECT: ranges((10, 20))}})
    two = files(tmp_path).outcomes(batch(5, 10, 15, query="two"))
    assert two == {KEY: {REJECT: ranges((10, 15))}}
    one = files(tmp_path).outcomes(batch(3, 10, 20, query="one"))
    assert one == {KEY: {REJECT: ranges((10, 20))}}
    assert files(tmp_path).outcomes(batch(5, 10, 15, query="two")) == two, "after a crash"
    assert files(tmp_path).outcomes(batch(6, 12, 14, query="two")) == {}
    assert files(tmp_path).outcomes(batch(4, 20, 30, query="one")) == {}
    assert files(tmp_path).outcomes(batch(7, 30, 40, query="two")) == {}
    assert names(tmp_path) == []


@pytest.mark.parametrize("end", [15, 20], ids=["shared", "whole"])
def test_batch_that_is_decided_again_after_a_crash_is_decided_once(
    tmp_path: Path, end: int
) -> None:
    for _ in range(2):
        decide(tmp_path, {ORDERS_0: {RELEASE: ranges((10, 20))}})
        released = {KEY: {RELEASE: ranges((10, end))}}
        assert files(tmp_path).outcomes(batch(5, 10, end)) == released
    assert files(tmp_path).outcomes(batch(6, 10, end)) == {}


def test_file_system_without_links_gives_the_file_to_one_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, name: Path) -> None:
        raise PermissionError(errno.EPERM, str(name))

    monkeypatch.setattr(os, "link", refuse)
    decide(tmp_path, {ORDERS_0: {RELEASE: ranges((10, 20))}})
    assert files(tmp_path).outcomes(batch(5, 10, 15)) == {KEY: {RELEASE: ranges((10, 15))}}
    assert names(tmp_path) == ["q.5"]
    assert files(tmp_path).outcomes(batch(6, 10, 15)) == {}


def test_shared_decisions_are_not_applied_to_a_redelivered_record(tmp_path: Path) -> None:
    """While the other query has not settled; new decisions with the same content count."""
    decided = {ORDERS_0: {RELEASE: ranges((10, 20))}}
    decide(tmp_path, decided)
    part = {KEY: {RELEASE: ranges((10, 15))}}
    assert files(tmp_path).outcomes(batch(5, 10, 15, query="two")) == part
    assert files(tmp_path).outcomes(batch(6, 10, 15, query="two")) == {}
    decide(tmp_path, decided)
    assert files(tmp_path).outcomes(batch(7, 10, 15, query="two")) == part


def make_old(location: Path) -> None:
    """Let all files and folders be of 1970."""
    for path in location.rglob("*"):
        os.utime(path, (0, 0))


def deciding(seq: int, first: int, end: int, *, query: str = "q", load: str) -> StreamOffset:
    return replace(batch(seq, first, end, query=query, load=load), decides=True)


def test_decisions_of_a_query_that_stood_still_for_years_are_found(tmp_path: Path) -> None:
    """Other queries of the group run meanwhile, and then the query starts again."""
    decide(tmp_path, {ORDERS_0: {RELEASE: ranges((12, 13))}}, load="old")
    files(tmp_path, load="old").announce("q")
    make_old(tmp_path)
    for seq in (1, 2):
        files(tmp_path, load="other").announce("other")
        files(tmp_path, load="other").outcomes(deciding(seq, 30, 40, query="other", load="other"))
    resumed = files(tmp_path, load="new")
    assert resumed.outcomes(deciding(7, 10, 20, load="old")) == {KEY: {RELEASE: ranges((12, 13))}}


def test_query_removes_the_files_of_its_earlier_loads_when_its_checkpoint_names_the_present_one(
    tmp_path: Path,
) -> None:
    for load in ("one", "two"):
        decide(tmp_path, {ORDERS_0: {REJECT: ranges((12, 13))}}, load=load)
        files(tmp_path, load=load).announce("q")
    reader = files(tmp_path, load="two")
    for _ in range(2):
        assert reader.outcomes(deciding(1, 10, 20, load="one")) == {KEY: {REJECT: ranges((12, 13))}}
        assert names(tmp_path) == ["", "", "q.1", "q.1"]
    reader.outcomes(deciding(2, 20, 30, load="two"))
    assert [path.parent for path in tmp_path.rglob("*.*")] == [
        Path(folder_of(str(tmp_path), "g/1", "two"))
    ]


def test_folder_of_an_earlier_load_stays_while_another_query_has_files_there(
    tmp_path: Path,
) -> None:
    decide(tmp_path, {ORDERS_0: {REJECT: ranges((12, 13))}}, load="one")
    for query in ("q", "r"):
        files(tmp_path, load="one").announce(query)
    files(tmp_path, load="two").outcomes(batch(5, 40, 50, load="two"))
    of_other = files(tmp_path, load="three")
    assert of_other.outcomes(deciding(3, 10, 20, query="r", load="one")) == {
        KEY: {REJECT: ranges((12, 13))}
    }


@pytest.mark.parametrize("lost", ["", "g", "g/load"])
def test_lost_decisions_end_the_query_with_what_to_do(tmp_path: Path, lost: str) -> None:
    """The location, the folder of the group or that of the `load()` is gone."""
    location = tmp_path / "decisions"
    files(location).announce("q")
    assert files(location).outcomes(deciding(7, 10, 20, load="load")) == {}
    folder = Path(folder_of(str(location), "g/1", "load"))
    shutil.rmtree({"": location, "g": folder.parent, "g/load": folder}[lost])
    with pytest.raises(
        DecisionsMissing,
        match=r"batch 7 of query q of share group 'g/1' are missing: expected the file .*"
        r"outcomesLocation.*failOnDataLoss=false",
    ):
        files(location, load="next").outcomes(deciding(7, 10, 20, load="load"))


def test_lost_decisions_are_accepted_if_the_user_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lenient = DecisionFiles(str(tmp_path), "g/1", "load", fail_on_missing=False)
    assert lenient.outcomes(deciding(7, 10, 20, load="load")) == {}
    assert "event=decisions.missing" in caplog.text


def test_query_that_never_decided_needs_no_folder(tmp_path: Path) -> None:
    assert files(tmp_path).outcomes(batch(7, 10, 20)) == {}
    assert not list(tmp_path.iterdir())


def test_file_that_another_query_marks_meanwhile_is_not_about_this_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = decide(tmp_path, {ORDERS_0: {RELEASE: ranges((30, 31))}})
    decide(tmp_path, {ORDERS_0: {RELEASE: ranges((12, 13))}})
    listed = os.listdir

    def list_and_mark(folder: Path) -> list[str]:
        found = listed(folder)
        if path.exists():
            path.rename(path.with_name(f"other.3.{path.name}"))
        return found

    monkeypatch.setattr(os, "listdir", list_and_mark)
    assert files(tmp_path).outcomes(batch(1, 10, 20)) == {KEY: {RELEASE: ranges((12, 13))}}


def test_folder_that_another_driver_removes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = decide(tmp_path, {ORDERS_0: {REJECT: ranges((12, 13))}}, load="old").parent
    listed = os.listdir

    def list_and_remove(folder: Path) -> list[str]:
        found = listed(folder)
        shutil.rmtree(old, ignore_errors=True)
        return found

    monkeypatch.setattr(os, "listdir", list_and_remove)
    assert files(tmp_path).outcomes(batch(1, 10, 20)) == {}


def test_a_file_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    path = decide(tmp_path, {ORDERS_0: {REJECT: ranges((1, 2))}})
    path.write_text(json.dumps({"v": 2}))
    with pytest.raises(ValueError, match=rf"{path.name}: decisions of version 2; expected 1"):
        files(tmp_path).outcomes(batch(1, 0, 5))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"v": 1}',
        b'{"v": 1, "outcomes": {"orders": {"0": {"keep": [0, 1]}}}}',
        b'{"v": 1, "outcomes": {"orders": {"0": {"reject": [0]}}}}',
        b'{"v": 1, "outcomes": {"orders": {"0": {"reject 5ms": [0, 1]}}}}',
        b'{"v": 1, "outcomes": {"orders": {"0": {"release 25h": [0, 1]}}}}',
        b'{"v": 1, "outcomes": {"orders": {"0": {"release 5": [0, 1]}}}}',
        b'{"v": 1, "outcomes": {"orders": {"x": {"reject": [0, 1]}}}}',
    ],
)
def test_a_file_of_other_content_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = decide(tmp_path, {ORDERS_0: {REJECT: ranges((1, 2))}})
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path.name}: is no file of decisions: .*remove it to"):
        files(tmp_path).outcomes(batch(1, 0, 5))


@pytest.mark.parametrize("name", ["..", ".", "", "../..", "/", "a/b", "\x00", "\udc80", "g" * 5000])
def test_any_group_and_load_stay_inside_the_location(tmp_path: Path, name: str) -> None:
    location = tmp_path / "decisions"
    neighbour = tmp_path / "neighbour" / "old"
    neighbour.mkdir(parents=True)
    for group, load in ((name, "load"), ("billing", name)):
        folder = folder_of(str(location), group, load)
        assert Path(folder).resolve().parent.parent == location
        path = write_decisions(folder, {ORDERS_0: {REJECT: ranges((12, 14))}})
        assert path.is_file()
        reader = DecisionFiles(str(location), group, load)
        reader.announce("q")
        assert reader.outcomes(batch(1, 10, 20, load=load)) == {KEY: {REJECT: ranges((12, 14))}}
    assert neighbour.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decisions", "neighbour"]


def test_groups_with_different_names_have_different_folders(tmp_path: Path) -> None:
    names = ["a", "A", "a/", "..", "%2E%2E", "a\udc80"]
    assert len({folder_of(str(tmp_path), name, "load") for name in names}) == len(names)


def test_default_location_is_the_same_in_all_working_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for state, expected in (("", ".local/state"), ("relative", ".local/state"), ("/s", "/s")):
        monkeypatch.setenv("XDG_STATE_HOME", state)
        assert default_location() == str(tmp_path / expected / "sharegroup" / "spark")


def test_user_without_a_home_directory_is_told_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers may run under a user id that the system does not know."""

    def unknown(user_id: int) -> pwd.struct_passwd:
        raise KeyError(user_id)

    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(InvalidConfig, match="outcomesLocation"):
        default_location()
    set_default_java()  # The import of sharegroup.spark calls it.


def test_symbolic_link_out_of_the_location_is_refused(tmp_path: Path) -> None:
    location, elsewhere = tmp_path / "decisions", tmp_path / "elsewhere"
    elsewhere.mkdir()
    location.mkdir()
    group_folder = Path(folder_of(str(location), "billing", "load")).parent
    group_folder.symlink_to(elsewhere)
    with pytest.raises(ValueError, match="is outside of"):
        folder_of(str(location), "billing", "load")
    with pytest.raises(ValueError, match="is outside of"):
        DecisionFiles(str(location), "billing", "load").announce("q")
