"""Heartbeats and commands survive their way through the topic, and no record can break a reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sharegroup.fleet import commands, heartbeats
from sharegroup.fleet.commands import EVERYBODY, Intent, Target, TargetKind, WorkerCommand
from sharegroup.fleet.heartbeats import (
    ANSWERS_MAX,
    GROUPS_MAX,
    Answer,
    Answered,
    Departed,
    Heartbeat,
    Identity,
    Versions,
)

numbers = st.integers(0, 2**63 - 1)
ids = st.from_regex(r"[A-Za-z0-9._-]{1,200}", fullmatch=True)
apps = st.from_regex(r"[A-Za-z0-9._-]{1,100}", fullmatch=True)
groups = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
short = st.text("0123456789.+abc", max_size=40)
identities = st.builds(
    Identity, app=apps, worker_id=ids, host=ids, pid=numbers, since_ms=numbers,
    groups=st.lists(groups, max_size=GROUPS_MAX).map(tuple), group_count=numbers,
    versions=st.builds(Versions, short, short),
)  # fmt: skip
answers = st.lists(st.builds(Answered, ids, st.sampled_from(Answer)), max_size=ANSWERS_MAX)
beats = st.builds(
    Heartbeat, identity=identities, phase=st.sampled_from(["running", "quiet", "stopping"]),
    running=numbers, waiting=numbers, held=numbers, answers=answers.map(tuple),
)  # fmt: skip
targets = st.just(EVERYBODY) | st.builds(
    Target, st.sampled_from([TargetKind.HOST, TargetKind.WORKER]), ids
)


@st.composite
def worker_commands(draw: st.DrawFn) -> WorkerCommand:
    asked_ms = draw(st.integers(0, 2**62))
    return WorkerCommand(
        command_id=draw(ids), intent=draw(st.sampled_from(Intent)), target=draw(targets),
        by=draw(texts), asked_ms=asked_ms, expires_ms=asked_ms + draw(st.integers(1, 3_600_000)),
    )  # fmt: skip


BEAT = Heartbeat(
    identity=Identity(
        app="orders-service", worker_id="web-3.17.f00d", host="web-3", pid=17, since_ms=5,
        groups=("billing",), group_count=1, versions=Versions("1.2", "3.12.1"),
    ),
    phase="quiet", running=1, waiting=2, held=3, answers=(Answered("c1", Answer.TAKEN),),
)  # fmt: skip
COMMAND = WorkerCommand(
    command_id="c1", intent=Intent.STOP, target=Target(TargetKind.HOST, "web-3"), by="anna",
    asked_ms=5, expires_ms=30_005,
)  # fmt: skip


@given(beats)
def test_heartbeat_survives_a_round_trip(beat: Heartbeat) -> None:
    assert heartbeats.parsed(*heartbeats.encoded(beat)) == beat


@given(worker_commands())
def test_command_survives_a_round_trip(command: WorkerCommand) -> None:
    assert commands.parsed(*commands.encoded(command)) == command


def test_records_are_json_that_other_tools_can_read() -> None:
    key, value = heartbeats.encoded(BEAT)
    assert key == b"web-3.17.f00d"
    assert json.loads(value) == {
        "format": 1, "app": "orders-service", "id": "web-3.17.f00d", "host": "web-3", "pid": 17,
        "since_ms": 5, "groups": ["billing"], "group_count": 1,
        "versions": {"sharegroup": "1.2", "python": "3.12.1"}, "phase": "quiet",
        "running": 1, "waiting": 2, "held": 3,
        "answers": [{"command_id": "c1", "answer": "taken"}],
    }  # fmt: skip
    key, value = commands.encoded(COMMAND)
    assert key == b"c1"
    assert json.loads(value) == {
        "format": 1, "id": "c1", "intent": "stop", "target": "host", "name": "web-3",
        "by": "anna", "asked_ms": 5, "expires_ms": 30_005,
    }  # fmt: skip


def test_record_without_a_value_is_a_clean_stop() -> None:
    assert heartbeats.parsed(b"web-3.17.f00d", None) == Departed("web-3.17.f00d")


BROKEN: list[dict[str, Any]] = [
    {"format": 2}, {"format": "1"}, {"id": "another"}, {"app": "a b"}, {"app": 7}, {"pid": -1},
    {"pid": True}, {"since_ms": 2**63}, {"groups": 7}, {"groups": [7]}, {"versions": []},
    {"versions": {}}, {"phase": "\x1b[2J"}, {"phase": "x" * 21}, {"running": None},
    {"answers": [7]}, {"answers": [{"command_id": "\n", "answer": "taken"}]},
    {"answers": {"command_id": "c"}}, {"answers": [{"command_id": "c", "answer": "maybe"}]},
    {"host": "web\n3"},
]  # fmt: skip


@pytest.mark.parametrize("change", BROKEN, ids=str)
def test_foreign_heartbeat_is_refused(change: dict[str, Any]) -> None:
    key, value = heartbeats.encoded(BEAT)
    foreign = json.dumps(json.loads(value) | change).encode()
    with pytest.raises(ValueError, match="expected a heartbeat"):
        heartbeats.parsed(key, foreign)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"id": "another"}, {"intent": "dance"}, {"target": "everything"},
        {"name": ""}, {"name": "\n"}, {"by": 7}, {"asked_ms": -1}, {"expires_ms": 5},
        {"expires_ms": 2**62}, {"asked_ms": None},
    ],
    ids=str,
)  # fmt: skip
def test_foreign_command_is_refused(change: dict[str, Any]) -> None:
    """Also one that would be valid forever."""
    key, value = commands.encoded(COMMAND)
    with pytest.raises(ValueError, match="expected a command"):
        commands.parsed(key, json.dumps(json.loads(value) | change).encode())


@pytest.mark.parametrize("parsed", [heartbeats.parsed, commands.parsed])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"), (b"", b"{}"), (b"\xff", b"{}"), (b"k", b"{}"), (b"k", b"["), (b"k", b"[]"),
        (b"k", b"x" * 20_000), (b"k", b"[" * 4_000), (b"k", b'{"format": ' + b"9" * 3_000 + b"}"),
    ],
)  # fmt: skip
def test_no_bytes_break_a_reader(
    parsed: Callable[[bytes | None, bytes | None], object], key: bytes | None, value: bytes
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  Each has another text.
        parsed(key, value)


def test_texts_of_a_foreign_heartbeat_are_cut_and_can_be_written() -> None:
    key, value = heartbeats.encoded(BEAT)
    document = json.loads(value) | {"groups": ["\ud800" + "x" * 299] * 40}
    beat = heartbeats.parsed(key, json.dumps(document).encode())
    assert not isinstance(beat, Departed)
    assert beat.identity.groups == ("?" + "x" * 248,) * 20


def test_identity_of_a_process_is_its_own() -> None:
    many = tuple(f"group-{number}" for number in range(30))
    first, second = (
        Identity.of_this_process("shop", many, Versions("1", "3"), 5) for _ in range(2)
    )
    assert first.worker_id != second.worker_id
    assert first.worker_id.startswith(f"{first.host}.{first.pid}.")
    assert (len(first.groups), first.group_count) == (20, 30)
