"""Test the wheel on every Python of this machine: `python -m tests.packaging.pythons`.

For each Python from 3.11 on: the wheel with the extra ``worker`` in a new environment, README's
worker, then the tools of ``dev`` and `tests/unit` on the installed package.  The newest one comes
from Debian if the machine has none (`debian_python`).
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

import click

from tests.packaging.debian_python import debian_python, why_not
from tests.packaging.environments import (
    BUILD,
    CONSTRAINTS,
    Interpreter,
    build_wheel,
    install,
    local_pythons,
    new_environment,
    passes,
    run_tests,
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
    found = local_pythons()
    if NEWEST in (wanted or (NEWEST,)) and NEWEST not in found:
        click.echo(f"{NEWEST}  from Debian: {why_not() or 'in build/debian'}")
        found = local_pythons(debian_python(NEWEST))
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
    done = "README's worker" if no_tests else "README's worker, tests/unit"
    failed = [
        python
        for python in chosen
        if not passes(
            python.minor,
            partial(check, python, wheel, with_tests=not no_tests),
            f"{python.path}: {done}",
        )
    ]
    sys.exit(1 if failed or not chosen else 0)


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
