"""List what stands in the way of a release: `python -m tests.packaging.release_checks`.

It looks at the last commit: placeholders, the changelog's date, the tag, uncommitted changes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import sharegroup
from sharegroup.installation import ON_AN_INDEX

ROOT = Path(__file__).resolve().parents[2]
PLACEHOLDER = ".invalid"
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def text_problems(version: str, project: str, changelog: str) -> Iterator[str]:
    """Yield the problems in the texts of ``pyproject.toml`` and ``CHANGELOG.md``."""
    lines = enumerate(project.splitlines(), 1)
    placeholders = [number for number, line in lines if PLACEHOLDER in line.partition("#")[0]]
    if placeholders:
        yield (
            f"pyproject.toml: lines {', '.join(map(str, placeholders))} have placeholders "
            f"(*{PLACEHOLDER}); expected addresses of the project, the same in SECURITY.md"
        )
    headings = HEADING.findall(changelog)
    if not headings or not re.fullmatch(
        rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", headings[0]
    ):
        yield (
            f"CHANGELOG.md: expected the newest section to be '## {version} (YYYY-MM-DD)', found "
            f"{headings[0] if headings else 'no section'!r}"
        )


def installation_problems(on_an_index: bool) -> Iterator[str]:
    """Yield the problem of messages and pages that install from a checkout."""
    if not on_an_index:
        yield (
            "src/sharegroup/installation.py: expected ON_AN_INDEX = True, and the pages written "
            "anew by `python -m tests.docs.installing`"
        )


def commit_problems(version: str, changed: str, tags: str) -> Iterator[str]:
    """Yield the problems of a commit: the files changed since, and the tags that point at it."""
    if changed:
        yield f"git: there are uncommitted changes; commit or remove them:\n{changed.rstrip()}"
    if f"v{version}" not in tags.split():
        found = ", ".join(tags.split()) or "none"
        yield (
            f"git: expected the tag v{version} at the last commit, found {found}; create it with: "
            f"git tag --annotate v{version} --message {version!r}"
        )


def git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    version = sharegroup.__version__
    project, changelog = ROOT / "pyproject.toml", ROOT / "CHANGELOG.md"
    problems = [
        *installation_problems(ON_AN_INDEX),
        *text_problems(version, project.read_text(), changelog.read_text()),
        *commit_problems(version, git("status", "--porcelain"), git("tag", "--points-at", "HEAD")),
    ]
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
