"""What the project says about itself: addresses, the newest release, reasons for dependencies."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sharegroup

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"]["Repository"]


def test_address_for_reports_of_vulnerabilities_is_that_of_the_metadata() -> None:
    (author,) = PROJECT["authors"]
    assert f"<{author['email']}>" in (ROOT / "SECURITY.md").read_text(), "see docs/releasing.md"


def test_every_address_of_the_project_is_below_one_url() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    below = re.compile(re.escape(REPOSITORY) + r"(?:/|\"|$)")
    for url in PROJECT["urls"].values():
        assert below.match(url), f"{url} is not below {REPOSITORY}; see docs/releasing.md"
    replacements = re.findall(r"^replacement = '\\1(.+)\\2'$", text, re.MULTILINE)
    assert len(replacements) == 2
    assert all(below.match(url) for url in replacements), replacements


def test_no_other_file_names_the_url() -> None:
    host = REPOSITORY.split("/")[2]
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    named = {str(path.relative_to(ROOT)) for path in pages if f"//{host}/" in path.read_text()}
    assert named == set(), "write a relative link; the index's page gets absolute ones"


def test_newest_section_of_the_changelog_is_this_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [heading for heading in headings if heading != "Unreleased"]
    assert re.fullmatch(
        rf"{re.escape(sharegroup.__version__)} \((?:\d{{4}}-\d\d-\d\d|not released yet)\)",
        released[0],
    ), f"found {released[0]!r}; see docs/releasing.md"


def test_every_dependency_has_its_reason() -> None:
    requirements = [
        *PROJECT["dependencies"],
        *(entry for extra in PROJECT["optional-dependencies"].values() for entry in extra),
    ]
    names = {canonicalize_name(Requirement(entry).name) for entry in requirements}
    page = (ROOT / "docs" / "adr" / "0008-dependencies.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    explained = {canonicalize_name(word) for row in rows for word in re.findall(r"[\w.-]+", row)}
    assert names - {"sharegroup"} - explained == set(), "add rows to docs/adr/0008-dependencies.md"
