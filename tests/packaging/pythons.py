"""Test the wheel on every Python of this machine: `python -m tests.packaging.pythons`.

For each Python from 3.11 on: the wheel with the extra ``worker`` in a new environment, README's
worker, then the tools of ``dev`` and `tests/unit` on the installed package.  The newest one comes
from Debian if the machine has none (`debian_python`).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.packaging.debian_python import debian_python, why_not
from tests.packaging.environments import (
    BUILD,
    CONSTRAINTS,
    Failed,
    Interpreter,
    build_wheel,
    install,
    interpreters,
    new_environment,
    run_tests,
    usual_folders,
)
from tests.packaging.readme_worker import run_readme_worker

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
"""The Pythons of the classifiers in pyproject.toml."""
NEWEST = "3.14"
"""It comes from Debian where the machine has none."""


@click.command()
@click.option("--python", "wanted", multiple=True, metavar="3.X", help="Only this one; repeatable.")
@click.option("--require-all", is_flag=True, help="Fail if a supported Python is missing.")
@click.option("--no-tests", is_flag=True, help="Only install the wheel and run README's worker.")
def main(wanted: tuple[str, ...], *, require_all: bool, no_tests: bool) -> None:
    """Test the wheel on every Python of this machine."""
    folders = usual_folders(os.environ)
    found = interpreters(folders)
    if NEWEST in (wanted or (NEWEST,)) and NEWEST not in found:
        click.echo(f"{NEWEST}  from Debian: {why_not() or 'in build/debian'}")
        made = debian_python(NEWEST)
        found = interpreters([*folders, *([made] if made else [])])
    missing = [minor for minor in wanted or SUPPORTED if minor not in found]
    for minor in missing:
        click.echo(f"{minor}  not on this machine, not tested")
    if missing and (wanted or require_all):
        raise click.ClickException(
            f"Python {', '.join(missing)} is neither on PATH nor in pyenv; install it, for example "
            f"with: pyenv install {missing[0]}"
        )
    wheel = build_wheel()
    chosen = [interpreter for minor, interpreter in found.items() if minor in (wanted or found)]
    failed = [python for python in chosen if not passes(python, wheel, with_tests=not no_tests)]
    sys.exit(1 if failed or not chosen else 0)


def passes(interpreter: Interpreter, wheel: Path, *, with_tests: bool) -> bool:
    """Whether everything works on one Python; the outcome is printed."""
    began = time.monotonic()
    try:
        check(interpreter, wheel, with_tests=with_tests)
    except Failed as error:
        click.echo(f"{interpreter.minor}  FAILED  {error}")
        return False
    seconds = time.monotonic() - began
    done = "README's worker, tests/unit" if with_tests else "README's worker"
    click.echo(f"{interpreter.minor}  ok  {interpreter.path}: {done}  ({seconds:.0f} s)")
    return True


def check(interpreter: Interpreter, wheel: Path, *, with_tests: bool) -> None:
    environment = new_environment(BUILD / "pythons" / interpreter.minor, interpreter.path)
    install(environment, f"{wheel}[worker]", constraints=[CONSTRAINTS])
    with tempfile.TemporaryDirectory() as folder:
        run_readme_worker(environment, Path(folder))
    if with_tests:
        install(environment, f"{wheel}[dev]", constraints=[CONSTRAINTS])
        run_tests(environment, "tests/unit")


if __name__ == "__main__":
    main()
