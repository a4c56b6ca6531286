"""Pictures of the documentation show what the code that draws them does today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs import draw_queue, pictures
from tests.docs.pictures import DRAWN, OF_THE_DEMO, PICTURES, code_hash, entry


def test_queue_is_drawn_by_the_core_of_today() -> None:
    assert draw_queue.PICTURE.read_text() == draw_queue.picture(), (
        "docs/pictures/queue.svg is out of date; run python -m tests.docs.draw_queue"
    )


def test_queue_shows_a_record_of_each_kind() -> None:
    assert {cell.look for cell in draw_queue.cells()} == {
        *("done", "dead", "again", "new"),
        *(draw_queue.ALICE, draw_queue.BOB, draw_queue.CAROL),
    }


@pytest.mark.parametrize("name", OF_THE_DEMO)
def test_picture_of_the_demo_is_as_new_as_its_code(name: str) -> None:
    assert json.loads(DRAWN.read_text())[name] == entry(PICTURES / name, OF_THE_DEMO[name]), (
        f"docs/pictures/{name} was drawn by other code; "
        "run make demo and python -m tests.docs.pictures build/demo"
    )


def test_every_picture_is_drawn_by_code() -> None:
    names = {path.name for path in PICTURES.iterdir()} - {DRAWN.name}
    assert names == {*OF_THE_DEMO, draw_queue.PICTURE.name}


def test_layout_and_comments_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "ROOT", tmp_path)
    source = tmp_path / "draw.py"
    source.write_text("width = 3\n")
    drawn = code_hash(["draw.py"])
    source.write_text("# Inches.\nwidth = (3)\n")
    assert code_hash(["draw.py"]) == drawn
    source.write_text("width = 4\n")
    assert code_hash(["draw.py"]) != drawn
