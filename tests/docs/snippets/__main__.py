"""`make docs-test`: run every block of README and docs in an environment made from the wheel.

    python -m tests.docs.snippets [--environment DIR] [PAGE ...]

Without ``--environment`` it builds the wheel and installs it with its extras into
``build/docs-test``, as a reader would.  It prints one line for each block, and ends with 1 if one
failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from tests.docs.snippets.page_blocks import ROOT, blocks
from tests.docs.snippets.page_run import PageRun, SnippetFailed, java_is_missing

BUILD = ROOT / "build" / "docs-test"
EXTRAS = "arrow,java,metrics,registry,spark,worker"
ALSO = (
    *("confluent-kafka", "pytest", "starlette"),
    # What confluent-kafka's registry client needs.
    *("attrs", "authlib", "cachetools", "certifi", "fastavro", "httpx"),
)


def pages() -> list[Path]:
    """README and every page of docs that has a block that runs."""
    written = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in written if any(block.how == "run" for block in blocks(page))]


def make_environment() -> Path:
    """Build the wheel and install it into a new virtual environment."""
    venv.create(BUILD / "venv", with_pip=True, clear=True)
    pip = [str(BUILD / "venv" / "bin" / "python"), "-m", "pip", "--quiet"]
    wheels = BUILD / "wheel"
    for old in wheels.glob("*.whl"):
        old.unlink()
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, ROOT], check=True)
    (wheel,) = wheels.glob("*.whl")
    wanted = [f"sharegroup[{EXTRAS}] @ {wheel.as_uri()}", *ALSO]
    subprocess.run([*pip, "install", "--constraint", ROOT / "constraints.txt", *wanted], check=True)
    return BUILD / "venv"


def run_pages(chosen: list[Path], environment: Path) -> Iterator[str]:
    """Run the pages, print a line for each block, and return the failures."""
    without = "java" if java_is_missing() else ""
    for page in chosen:
        with (
            tempfile.TemporaryDirectory(prefix="docs-test-") as folder,
            PageRun(page, Path(folder), environment) as reader,
        ):
            began = time.monotonic()
            try:
                for block in reader.run(without=without):
                    print(f"ok      {block.name}  {time.monotonic() - began:.1f} s", flush=True)
                    began = time.monotonic()
            except SnippetFailed as failure:
                print(f"FAILED  {failure}", flush=True)
                yield str(failure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, help="a virtual environment with sharegroup")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    chosen = [page.resolve() for page in arguments.pages] or pages()
    environment = arguments.environment or make_environment()
    failures = list(run_pages(chosen, environment.absolute()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
