"""The runner of pages notices what a reader would notice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.snippets.page_run import BLOCK_SECONDS_MAX, PageRun, SnippetFailed, has_lines

ENVIRONMENT = Path(sys.executable).parent.parent


def run(folder: Path, text: str, *, seconds_max: float = BLOCK_SECONDS_MAX) -> list[int]:
    """Run a page; return the lines of its blocks that ran."""
    page = folder / "page.md"
    page.write_text(text)
    with PageRun(page, folder, ENVIRONMENT, seconds_max=seconds_max) as reader:
        return [block.line for block in reader.run()]


def test_blocks_share_a_folder_and_programs_in_the_background_go_on(tmp_path: Path) -> None:
    text = """
<!-- run: file=counter.py -->
```python
import time
while True:
    time.sleep(0.05)
    print("alive", len(open("asked").read()), flush=True)
```
```console
$ printf 1 > asked
$ python counter.py &
alive 1
```
```console
$ printf 23 >> asked
alive ...
alive 3
```
"""
    assert run(tmp_path, text) == [3, 9, 14]


def test_worker_commands_of_a_page_see_only_its_own_workers(tmp_path: Path) -> None:
    text = """
```python
from sharegroup.worker.lifecycle.pid_files import folder
print(folder())
```
<!-- output -->
```text
{}
```
"""
    run(tmp_path, text.format(tmp_path / ".runtime" / "sharegroup"))


def test_output_that_differs_from_the_page_fails(tmp_path: Path) -> None:
    page = "```python\nprint('seven', 7)\n```\n<!-- output -->\n```text\nseven {}\n```\n"
    run(tmp_path, page.format("..."))
    with pytest.raises(SnippetFailed, match="seven 7"):
        run(tmp_path, page.format("8"))


def test_program_that_fails_is_named_with_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(SnippetFailed, match=r"page\.md:1: exit code 3\nbefore"):
        run(tmp_path, "```python\nimport sys\nprint('before')\nsys.exit(3)\n```\n")
    with pytest.raises(SnippetFailed, match="exit code 1"):
        run(tmp_path, "```console\n$ false | cat\n$ echo never\n```\n")


def test_program_that_does_not_end_is_stopped_when_it_shows_what_it_should(tmp_path: Path) -> None:
    text = "<!-- run: until=started -->\n```python\nimport time\nprint('started')\n{}\n```\n"
    assert run(tmp_path, text.format("while True: time.sleep(1)")) == [2]


def test_command_that_reads_is_repeated_until_it_prints_what_the_page_shows(
    tmp_path: Path,
) -> None:
    page = "<!-- run: repeat=output -->\n```console\n$ echo >> asked\n$ {}\n{}\n```\n"
    run(tmp_path, page.format("wc -l < asked", "3"))
    (tmp_path / "asked").unlink()
    run(tmp_path, page.format("test $(wc -l < asked) -eq 2 && echo two", "two"))
    (tmp_path / "asked").unlink()
    with pytest.raises(SnippetFailed, match="waited in vain for\nfour\n"):
        run(tmp_path, page.format("echo three", "four"), seconds_max=0.2)


def test_fragment_runs_in_a_coroutine_after_the_imports_of_its_page(tmp_path: Path) -> None:
    text = """
<!-- run: file=names.py inside=file -->
```python
import asyncio
seven = 7
```
<!-- run: inside=async needs=broker -->
```python
await asyncio.sleep(0)
assert seven == 7
```
"""
    assert run(tmp_path, text) == [3, 8]


def test_three_dots_stand_for_a_part_of_a_line_or_for_lines() -> None:
    assert has_lines("a 1 b\nx\ny\nc", ["a ... b", "...", "c"])
    assert not has_lines("a 1 b\nc", ["c", "a ... b"])


def test_order_of_lines_counts_unless_several_programs_print() -> None:
    assert has_lines("a 1 b\nc", ["c", "a ... b"], in_order=False)
    assert not has_lines("a\nb", ["a", "a"], in_order=False)
