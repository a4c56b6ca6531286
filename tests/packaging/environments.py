"""Environments for the wheel: the Pythons of this machine, installation, and a run of tests.

local_pythons --> one environment for each --> the wheel with an extra --> README's worker, tests
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tests.support.limits import HANGING_SECONDS

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
CONSTRAINTS = ROOT / "constraints.txt"
OLDEST = (3, 11)
NAME = re.compile(r"python3\.\d+")
VERSION = "import sys; print(*sys.version_info[:3], sep='.')"
ORIGIN = "import sharegroup; print(sharegroup.__file__)"
TEST_PROCESSES = "2"


class Failed(Exception):
    """A step failed; the message says which."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python of this machine."""

    path: Path
    version: tuple[int, ...]

    @property
    def minor(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with its own copy of the packages."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def local_pythons(*more_folders: Path | None) -> dict[str, Interpreter]:
    """Return the newest Python of each minor version of this machine, oldest first.

    They are on PATH, in pyenv, or in one of the folders; None is a folder that is not there.
    """
    more = [folder for folder in more_folders if folder is not None]
    return interpreters([*usual_folders(os.environ), *more])


def interpreters(folders: Iterable[Path]) -> dict[str, Interpreter]:
    """Return the newest usable Python of each minor version from 3.11 on, oldest first."""
    found: dict[str, Interpreter] = {}
    for path in _named_like_pythons(folders):
        version = _version(path)
        if version is None or version[:2] < OLDEST:
            continue
        interpreter = Interpreter(path, version)
        known = found.get(interpreter.minor)
        if known is None or known.version < version:
            found[interpreter.minor] = interpreter
    return dict(sorted(found.items(), key=lambda item: item[1].version))


def usual_folders(environ: Mapping[str, str]) -> list[Path]:
    """Return the folders on PATH, and those of the versions that pyenv has."""
    pyenv = Path(environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = [Path(folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    return [*on_path, *sorted(pyenv.glob("versions/*/bin"))]


def _named_like_pythons(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        if folder.is_dir():
            yield from sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))


def _version(python: Path) -> tuple[int, ...] | None:
    """The version of an interpreter; None if it does not run, as a shim without a version."""
    try:
        done = subprocess.run(
            [python, "-c", VERSION], capture_output=True, text=True, timeout=HANGING_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return tuple(int(part) for part in done.stdout.strip().split("."))


def run(step: str, command: Sequence[str | Path], **more: str) -> str:
    """Run a command in the checkout, with more variables; raises Failed with its output.

    Returns what it printed.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise Failed(f"{step}: exit code {done.returncode}\n{done.stdout.rstrip()}")
    return done.stdout


def passes(name: str, check: Callable[[], object], details: str = "") -> bool:
    """Whether a check ends without Failed; prints its name, outcome and seconds."""
    began = time.monotonic()
    try:
        check()
    except Failed as error:
        click.echo(f"{name}  FAILED  {details}{': ' if details else ''}{error}")
        return False
    took = f"({time.monotonic() - began:.0f} s)"
    click.echo("  ".join(part for part in (name, "ok", details, took) if part))
    return True


def new_environment(folder: Path, python: Path) -> Environment:
    """Create an empty environment; one that is there already is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    maker = [uv, "venv", "--python", python] if uv else [python, "-m", "venv"]
    run(f"create {folder}", [*maker, folder])
    return Environment(folder)


def install(environment: Environment, *requirements: str, constraints: Sequence[Path]) -> None:
    """Install requirements under constraints; faster with uv, if it is installed."""
    limits = [part for path in constraints for part in ("--constraint", path)]
    command = [*_installer(environment, "install"), *limits, *requirements]
    run(f"install {' '.join(requirements)}", command)


def uninstall(environment: Environment, name: str) -> None:
    """Remove one package."""
    command = _installer(environment, "uninstall")
    run(f"uninstall {name}", [*command, *([] if shutil.which("uv") else ["--yes"]), name])


def _installer(environment: Environment, verb: str) -> list[str | Path]:
    if uv := shutil.which("uv"):
        return [uv, "pip", verb, "--python", environment.python]
    return [environment.python, "-m", "pip", verb, "--disable-pip-version-check"]


def build_wheel() -> Path:
    """Build the wheel of this checkout with the build backend of this environment."""
    folder = BUILD / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    backend = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    run("build the wheel", backend)
    (wheel,) = folder.glob("*.whl")
    return wheel


def run_tests(environment: Environment, *arguments: str, **more: str) -> None:
    """Run pytest against the installed package; raises Failed if the checkout's would be tested.

    ``more`` are variables of its environment.
    """
    done = subprocess.run(
        [environment.python, "-c", ORIGIN], cwd=ROOT, capture_output=True, text=True, check=True
    )
    if not Path(done.stdout.strip()).is_relative_to(environment.folder):
        raise Failed(f"expected sharegroup of {environment.folder}, found {done.stdout.strip()}")
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(BUILD / "bytecode")}
    pytest = [environment.python, "-m", "pytest", "-q", "-n", TEST_PROCESSES, "--dist", "loadfile"]
    run(f"pytest {' '.join(arguments)}", [*pytest, *arguments], **bytecode, **more)
