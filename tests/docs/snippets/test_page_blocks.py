"""How a page's blocks and the comments before them are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.snippets.page_blocks import PROGRAMS, ROOT, Block, Step, blocks

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def first_block(folder: Path, text: str) -> Block:
    page = folder / "page.md"
    page.write_text(text)
    return blocks(page)[0]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_block_runs_or_has_a_written_reason(page: Path) -> None:
    for block in blocks(page):
        assert block.language, f"{block.name}: name the language; text for drawings and output"
        if block.language in PROGRAMS:
            assert block.how in ("run", "run by", "not run"), block.name
        if block.how == "not run":
            assert len(block.reason.split()) >= 4, f"{block.name}: the reason is not written out"
        if block.how == "run by":
            test = ROOT / block.reason
            assert page.name in test.read_text(), f"{block.name}: {test} does not know the page"


def test_pages_have_blocks_that_run() -> None:
    ran = [block for page in PAGES for block in blocks(page) if block.how == "run"]
    assert len(ran) >= 5


def test_commands_have_their_continued_lines_and_output_is_what_is_left(tmp_path: Path) -> None:
    block = first_block(tmp_path, "```console\n$ one \\\n    two\nprinted\n$ three\n```\n")
    assert block.steps() == [Step("one \\\n    two", ("printed",)), Step("three", ())]


@pytest.mark.parametrize(
    ("command", "awaited"),
    [("a &", True), ("a & echo $!", True), ("a && b", False), ("a 2>&1", False), ("a", False)],
)
def test_reader_waits_for_the_output_of_a_program_in_the_background(
    tmp_path: Path, command: str, awaited: bool
) -> None:
    (step,) = first_block(tmp_path, f"```console\n$ {command}\nready\n```\n").steps()
    assert step.is_awaited == awaited


def test_options_are_read_from_the_comment_before_the_block(tmp_path: Path) -> None:
    text = "<!-- run: needs=broker,java until='is ready' -->\n```python\npass\n```\n"
    block = first_block(tmp_path, text)
    assert (block.how, block.line) == ("run", 2)
    assert block.options == {"needs": "broker,java", "until": "is ready"}


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("run: nedes=broker", "nedes"),
        ("run: needs=cluster", "cluster"),
        ("not run", "none of page_blocks.py"),
    ],
)
def test_comment_with_a_mistake_is_refused(tmp_path: Path, comment: str, said: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- {comment} -->\n```python\npass\n```\n")
    with pytest.raises(ValueError, match=said):
        blocks(page)


def test_reason_for_the_whole_page_leaves_blocks_with_options_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run here: signatures and no programs -->\n```python\nf()\n```\n"
        "<!-- run: needs=broker -->\n```python\npass\n```\n```text\ndrawing\n```\n"
    )
    assert [block.how for block in blocks(page)] == ["not run", "run", "text"]
    page.write_text("```python\nf()\n```\n" + page.read_text())
    with pytest.raises(ValueError, match="stands before the first; for the next block alone"):
        blocks(page)
