"""The wheel and the source distribution: contents, metadata, the index's page, identical bytes.

Both are built once, by the build backend in this environment, because a build in an environment of
its own would install the backend from the package index (`make dist` does that).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata

import sharegroup

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
BUILD_SECONDS_MAX = 60
SOURCE_DATE_EPOCH = "1767225600"
PACKAGES = {
    *("pyspark_sharegroup", "pyspark_sharegroup_letters", "pyspark_sharegroup_state"),
    "sharegroup",
}
MARKDOWN_TARGET = re.compile(r"(?:\]\(|(?:href|src|srcset)=\")([^)\"\s]+)")
TAGGED = re.compile(rf"{re.escape(REPOSITORY)}/(?:blob|raw)/v([^/]+)/([^#]+)")


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel and a source distribution that were built from one folder."""

    wheel: Path
    sdist: Path

    def metadata(self) -> Message:
        with ZipFile(self.wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
            return HeaderParser().parsestr(archive.read(name).decode())

    def wheel_files(self) -> list[str]:
        with ZipFile(self.wheel) as archive:
            return archive.namelist()

    def sdist_files(self) -> set[str]:
        """The paths below the archive's one folder."""
        with tarfile.open(self.sdist) as archive:
            return {member.name.split("/", 1)[1] for member in archive if member.isfile()}


def build(source: Path, output: Path) -> Built:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(output)],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    (wheel,), (sdist,) = output.glob("*.whl"), output.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_wheel_contains_the_two_packages_their_markers_and_the_licence(built: Built) -> None:
    files = built.wheel_files()
    folders = {name.split("/")[0] for name in files}
    assert folders == {*PACKAGES, f"sharegroup-{sharegroup.__version__}.dist-info"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= {*files}
    assert f"sharegroup-{sharegroup.__version__}.dist-info/licenses/LICENSE" in files
    assert [name for name in files if "__pycache__" in name or name.endswith(".pyc")] == []


def test_wheel_contains_every_module_of_the_source(built: Built) -> None:
    source = ROOT / "src"
    modules = {
        str(path.relative_to(source)) for name in PACKAGES for path in (source / name).rglob("*.py")
    }
    assert modules - {*built.wheel_files()} == set()


def test_wheel_suits_every_platform_and_python(built: Built) -> None:
    assert built.wheel.name == f"sharegroup-{sharegroup.__version__}-py3-none-any.whl"


def test_entry_points_are_importable(built: Built) -> None:
    with ZipFile(built.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        text = archive.read(name).decode()
    entries = dict(re.findall(r"^(\S+) = (\S+)$", text, re.MULTILINE))
    assert {"sharegroup", "sharegroup-spark-python"} == entries.keys()
    assert text.count("[console_scripts]") == text.count("[pytest11]") == 1
    for target in re.findall(r"= (\S+)$", text, re.MULTILINE):
        module, _, attribute = target.partition(":")
        assert not attribute or callable(getattr(import_module(module), attribute))


def test_metadata_is_valid_and_complete(built: Built) -> None:
    metadata = Metadata.from_email(str(built.metadata()), validate=True)
    assert metadata.version is not None
    assert str(metadata.version) == sharegroup.__version__
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.description_content_type == "text/markdown"
    assert metadata.author_email is not None
    assert metadata.author_email.startswith("the sharegroup authors <")
    labels = {"Homepage", "Repository", "Documentation", "Changelog", "Issues"}
    assert labels == (metadata.project_urls or {}).keys()
    classifiers = {*(metadata.classifiers or ())}
    pythons = {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)}
    assert {"Operating System :: POSIX", "Typing :: Typed", *pythons} <= classifiers


def test_page_on_an_index_has_no_relative_link(built: Built) -> None:
    page = built.metadata().get_payload()
    targets = MARKDOWN_TARGET.findall(page)
    assert len(targets) > 10, "the page must be README.md, which has many links"
    assert [target for target in targets if not re.match(r"https?://|#", target)] == []


def test_links_of_that_page_name_files_of_this_release(built: Built) -> None:
    page = built.metadata().get_payload()
    tagged = [found.groups() for target in MARKDOWN_TARGET.findall(page)
              if (found := TAGGED.match(target))]  # fmt: skip
    assert len(tagged) > 10
    assert {version for version, _ in tagged} == {sharegroup.__version__}
    assert [path for _, path in tagged if not (ROOT / path).exists()] == []


def test_source_distribution_contains_docs_changelog_and_tests(built: Built) -> None:
    files = built.sdist_files()
    assert {
        *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md"),
        *("constraints.txt", "pyproject.toml", "docs/README.md", "docs/adr/0001-sync.md"),
        *("tests/conftest.py", "tests/unit/test_steps.py"),
        *("src/sharegroup/py.typed", "src/pyspark_sharegroup/py.typed"),
    } <= files
    folders = {name.split("/")[0] for name in files if "/" in name}
    assert folders >= {"docs", "examples", "src", "tests"}
    assert folders.isdisjoint({".git", ".venv", "build", "dist"})


@pytest.mark.slow
def test_build_from_an_unpacked_source_distribution_is_identical(
    built: Built, tmp_path: Path
) -> None:
    """Another path, other times and other permissions of files make no difference."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    for path in source.rglob("*.md"):
        path.chmod(0o600)
        os.utime(path, (1, 1))
    again = build(source, tmp_path / "dist")
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()
