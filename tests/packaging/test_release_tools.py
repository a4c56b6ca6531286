"""The tools of a release: Pythons of a machine, oldest versions, reasons against a release."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import pytest

from tests.packaging.dependency_range import others, requirements_of_tests
from tests.packaging.environments import (
    Environment,
    Failed,
    interpreters,
    passes,
    run,
    run_tests,
    usual_folders,
)
from tests.packaging.pythons import SUPPORTED
from tests.packaging.readme_worker import worker_source
from tests.packaging.release_checks import (
    commit_problems,
    installation_problems,
    text_problems,
)
from tests.packaging.test_project import PROJECT

READY_PROJECT = 'Homepage = "https://example.org/sharegroup"  # was example.invalid\n'
READY_CHANGELOG = "# Changelog\n\n## 0.2.0 (2026-12-31)\n\n### Added\n"


def python_that_prints(folder: Path, name: str, version: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)


def test_newest_python_of_each_minor_version_is_found(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    python_that_prints(first, "python3.12", "3.12.1")
    python_that_prints(first, "python3.9", "3.9.18")
    python_that_prints(second, "python3.12", "3.12.4")
    python_that_prints(second, "python3.11", "3.11.7")
    found = interpreters([first, tmp_path / "missing", second])
    assert [(minor, python.path.parent.name) for minor, python in found.items()] == [
        ("3.11", "second"),
        ("3.12", "second"),
    ]


def test_a_program_that_is_not_a_working_python_is_left_out(tmp_path: Path) -> None:
    python_that_prints(tmp_path, "python3.12", "3.12.1; exit 127")
    (tmp_path / "python3.13").write_text("not executable")
    python_that_prints(tmp_path, "python3.12-config", "3.12.1")
    assert interpreters([tmp_path]) == {}


def test_folders_are_those_on_the_path_and_those_of_pyenv(tmp_path: Path) -> None:
    installed = tmp_path / "versions" / "3.13.0" / "bin"
    installed.mkdir(parents=True)
    environ = {"PATH": f"/a{os.pathsep}{os.pathsep}/b", "PYENV_ROOT": str(tmp_path)}
    assert usual_folders(environ) == [Path("/a"), Path("/b"), installed]


def test_supported_pythons_are_those_of_the_classifiers() -> None:
    prefix = "Programming Language :: Python :: 3."
    classifiers = [entry for entry in PROJECT["classifiers"] if entry.startswith(prefix)]
    assert [f"Programming Language :: Python :: {minor}" for minor in SUPPORTED] == classifiers
    assert PROJECT["requires-python"] == f">={SUPPORTED[0]}"


def test_a_failed_step_says_what_the_command_printed() -> None:
    with pytest.raises(Failed, match=r"say: exit code 3\nno such thing"):
        run("say", ["sh", "-c", "echo no such thing >&2; exit 3"])


def test_outcome_of_a_check_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise Failed("say: exit code 3")

    assert [passes("3.12", str, "/a"), passes("oldest", str)] == [True, True]
    assert [passes("3.12", fail, "/a"), passes("oldest", fail)] == [False, False]
    assert capsys.readouterr().out == (
        "3.12  ok  /a  (0 s)\noldest  ok  (0 s)\n"
        "3.12  FAILED  /a: say: exit code 3\noldest  FAILED  say: exit code 3\n"
    )


def test_tests_are_not_run_on_the_checkout_instead_of_the_wheel(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    stand_in = Environment(tmp_path)
    (tmp_path / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    site = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    source = Path(__file__).resolve().parents[2] / "src"
    (site / "checkout.pth").write_text(f"{source}\n")
    with pytest.raises(Failed, match=r"expected sharegroup of .*, found .*src/sharegroup"):
        run_tests(stand_in, "tests/unit/test_steps.py")


def test_constraints_of_other_packages_are_kept() -> None:
    constraints = "click==8.5.1\nnumpy==2.4.6 ; python_full_version < '3.12'\nruff==0.17.5\n"
    assert others(constraints, without="# uv\nclick==8.2.0\nnumpy==2.0.0\n") == "ruff==0.17.5\n"


def test_tests_of_the_range_install_the_wheel_and_no_linter() -> None:
    requirements = requirements_of_tests(Path("/built/sharegroup.whl"))
    assert requirements[0].startswith("/built/sharegroup.whl[")
    assert [entry for entry in requirements if entry.startswith(("sharegroup", "import-"))] == []
    assert "pytest>=9" in requirements


def test_worker_of_the_readme_is_found() -> None:
    assert "@app.share_group(" in worker_source()
    ast.parse(worker_source())


def test_a_commit_that_can_be_released_has_no_problem() -> None:
    assert [*text_problems("0.2.0", READY_PROJECT, READY_CHANGELOG)] == []
    assert [*commit_problems("0.2.0", "", "latest\nv0.2.0\n")] == []


@pytest.mark.parametrize(
    ("project", "changelog", "found"),
    [
        (f'{READY_PROJECT}Issues = "https://example.invalid"\n', READY_CHANGELOG, "lines 2 have"),
        (READY_PROJECT, "# Changelog\n", "found 'no section'"),
        (READY_PROJECT, f"## Unreleased\n\n{READY_CHANGELOG}", "found 'Unreleased'"),
        (READY_PROJECT, "## 0.2.0 (not released yet)\n", r"found '0.2.0 \(not released yet\)'"),
        (READY_PROJECT, "## 0.1.9 (2026-11-30)\n", r"found '0.1.9 \(2026-11-30\)'"),
    ],
)
def test_texts_that_stand_in_the_way_of_a_release(project: str, changelog: str, found: str) -> None:
    (problem,) = text_problems("0.2.0", project, changelog)
    assert re.search(found, problem)


@pytest.mark.parametrize(
    ("changed", "tags", "found"),
    [
        (" M README.md\n", "v0.2.0", "uncommitted changes.*\n M README.md"),
        ("", "v0.1.0", "expected the tag v0.2.0 at the last commit, found v0.1.0"),
        ("", "", "expected the tag v0.2.0 at the last commit, found none"),
    ],
)
def test_commits_that_cannot_be_released(changed: str, tags: str, found: str) -> None:
    (problem,) = commit_problems("0.2.0", changed, tags)
    assert re.search(found, problem)


def test_a_release_installs_from_the_index() -> None:
    assert list(installation_problems(on_an_index=True)) == []
    (problem,) = installation_problems(on_an_index=False)
    assert "tests.docs.installing" in problem
