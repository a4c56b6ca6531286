"""Test both ends of the allowed versions: `python -m tests.packaging.dependency_range`.

    oldest   the lowest versions that `pyproject.toml` allows, for base and extras of users together
    newest   whatever the package index has within the bounds

The tests are those of the code that uses the libraries: `tests/unit`, the embedded broker, and the
retries of workers.  It needs uv, which can resolve lowest versions.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from functools import partial
from pathlib import Path

import click

from tests.packaging.environments import (
    BUILD,
    CONSTRAINTS,
    ROOT,
    Interpreter,
    build_wheel,
    install,
    local_pythons,
    new_environment,
    passes,
    run,
    run_tests,
)

FOLDER = BUILD / "dependency-range"
USERS_EXTRAS = ("arrow", "java", "metrics", "spark", "worker")
TESTS = (
    "tests/unit",
    "tests/integration/testing",
    "tests/integration/worker/test_retry_app.py",
    "tests/integration/worker/test_retry_security.py",
    "tests/integration/worker/test_retry_tiers.py",
)
LINTER = "import-linter"
"""The tool of ``dev`` that these tests do not use, and that needs a newer rich than users do."""
DEPRECATIONS_SHOWN = ("-W", "default::DeprecationWarning")
"""Not errors here: an old library may call functions that a new one has deprecated."""
PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
AIMED = ("aiokafka", "click", "cramjam", "kio")
"""Libraries whose version is printed."""


@click.command()
@click.argument("ends", nargs=-1, type=click.Choice(["oldest", "newest"]))
def main(ends: tuple[str, ...]) -> None:
    """Test the oldest and the newest allowed versions of the dependencies."""
    if shutil.which("uv") is None:
        raise click.ClickException(
            "uv is needed to resolve the oldest versions, and is not on PATH; see "
            "https://docs.astral.sh/uv for its installation"
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    # Old versions have compiled wheels for old Pythons only.
    python = next(iter(local_pythons().values()))
    wheel = build_wheel()
    chosen = ends or ("oldest", "newest")
    failed = [end for end in chosen if not passes(end, partial(check, end, wheel, python))]
    sys.exit(1 if failed else 0)


def check(end: str, wheel: Path, python: Interpreter) -> None:
    """Run the tests at one end; raises Failed."""
    constraints = [*oldest_versions(python)] if end == "oldest" else []
    environment = new_environment(FOLDER / end, python.path)
    install(environment, *requirements_of_tests(wheel), constraints=constraints)
    installed = FOLDER / f"{end}-installed.txt"
    freeze = ["uv", "pip", "freeze", "--python", environment.python]
    installed.write_text(run(f"list {end}", freeze))
    versions = dict(PIN.findall(installed.read_text()))
    click.echo(f"{end}  {', '.join(f'{name} {versions[name]}' for name in AIMED)}")
    run_tests(environment, *DEPRECATIONS_SHOWN, *TESTS)


def requirements_of_tests(wheel: Path) -> list[str]:
    """Return the extra ``dev`` without the linter; the project itself is the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entries: list[str] = project["optional-dependencies"]["dev"]
    needed = [entry for entry in entries if not entry.startswith(LINTER)]
    assert len(needed) == len(entries) - 1, f"{LINTER} is in the extra dev"
    return [re.sub(r"^sharegroup\[", f"{wheel}[", entry) for entry in needed]


def oldest_versions(python: Interpreter) -> tuple[Path, Path]:
    """Write the oldest versions, and those of the other tools; returns both as constraints."""
    oldest, tools = FOLDER / "oldest.txt", FOLDER / "tools.txt"
    extras = [part for extra in USERS_EXTRAS for part in ("--extra", extra)]
    compile_ = ["uv", "pip", "compile", "--quiet", "--resolution", "lowest-direct", *extras]
    target = ["--python-version", python.minor, "--no-annotate", "--output-file", oldest]
    run("resolve the oldest versions", [*compile_, *target, ROOT / "pyproject.toml"])
    tools.write_text(others(CONSTRAINTS.read_text(), without=oldest.read_text()))
    return oldest, tools


def others(constraints: str, *, without: str) -> str:
    """Return the lines of constraints for packages that ``without`` does not name."""
    named = {name for name, _ in PIN.findall(without)}
    lines = constraints.splitlines(keepends=True)
    return "".join(line for line in lines if line.split("==")[0] not in named)


if __name__ == "__main__":
    main()
