"""The fuzzer makes what it should, finds a planted defect, and finds nothing else.

`tests/attacks/cases` has every input that broke something once; each is replayed here.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker.handler_contract import ApiHandler
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.wire.codec.apis import request_class
from sharegroup.wire.codec.encoder import encode
from tests.faults.tokens import joined, tokens_of
from tests.fuzz import in_process
from tests.fuzz.findings import CASES, Case, replay
from tests.fuzz.frames import VERSIONS, FrameMaker
from tests.fuzz.messages import Known, message

LIST_GROUPS = 16
FRAMES = 1_500
CASE_FILES = sorted(CASES.glob("*.json"))


def test_tokens_of_a_message_are_its_bytes() -> None:
    dice = random.Random(1)
    for api, version in VERSIONS:
        for _ in range(10):
            made = message(request_class(api.key, version), dice, Known())
            assert joined(tokens_of(made)) == encode(made), f"{api.name} {version}"


def test_a_seed_makes_the_same_frames_again() -> None:
    first, second = (FrameMaker(random.Random(7), Known()) for _ in range(2))
    frames = [first.next() for _ in range(300)]
    assert frames == [second.next() for _ in range(300)]
    assert len({frame.data for frame in frames}) == 300
    assert 50 < sum(frame.is_whole for frame in frames) < 250


def test_a_short_run_breaks_nothing(tmp_path: Path) -> None:
    run = in_process.run(tmp_path / "data", seconds=60, seed=1, cases=None, frames_max=FRAMES)
    totals = asyncio.run(run)
    assert totals.findings == {}
    assert totals.sent == FRAMES
    assert totals.checked > 50


def broken(*_: object) -> Any:
    raise ZeroDivisionError("planted")


def with_a_defect(api_key: int) -> ApiHandler:
    handler = handler_of(api_key)
    return replace(handler, handle=broken) if api_key == LIST_GROUPS else handler


@pytest.mark.slow
def test_a_planted_defect_is_found_and_minimised(tmp_path: Path) -> None:
    cases = tmp_path / "cases"
    cases.mkdir()
    run = in_process.run(
        tmp_path / "data",
        seconds=60,
        seed=2,
        cases=cases,
        frames_max=400,
        handler_of=with_a_defect,
    )
    totals = asyncio.run(run)
    assert [name.split(" ")[0] for name in totals.findings] == ["ZeroDivisionError"]
    (path,) = cases.glob("*.json")
    assert len(Case.load(path).steps) == 1


@pytest.mark.parametrize("path", CASE_FILES, ids=lambda path: path.stem)
def test_former_failure_does_not_occur_again(path: Path, tmp_path: Path) -> None:
    case = Case.load(path)
    findings = asyncio.run(replay(tmp_path / "data", case))
    assert not findings, f"{case.signature}: {findings[0].text}"
