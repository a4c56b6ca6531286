"""Run the tests of this folder with Django 6: `python -m tests.integration.django.environment`.

Django 6 needs Python 3.12, and the oldest Python that sharegroup supports is 3.11.  The environment
is in build/django; one that is there stays, unless constraints.txt is newer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import click

from tests.packaging.environments import (
    BUILD,
    CONSTRAINTS,
    ROOT,
    Environment,
    Failed,
    Interpreter,
    build_wheel,
    install,
    interpreters,
    new_environment,
    run_tests,
    usual_folders,
)

OLDEST = (3, 12)
FOLDER = BUILD / "django"
TOOLS = ("hypothesis", "psutil", "psycopg[binary]", "pytest", "pytest-randomly", "pytest-xdist")
TESTS = ("tests/integration/django", "tests/unit/django")


def newer_python(environ: Mapping[str, str]) -> Interpreter | None:
    """Return the newest Python that Django 6 runs on; None if this machine has none."""
    found = interpreters(usual_folders(environ)).values()
    usable = [interpreter for interpreter in found if interpreter.version[:2] >= OLDEST]
    return max(usable, key=lambda interpreter: interpreter.version, default=None)


def run(interpreter: Interpreter) -> None:
    """Install the wheel and Django beside this Python, and run the tests; raises Failed."""
    environment = Environment(FOLDER)
    made = environment.python
    if not made.exists() or made.lstat().st_mtime < CONSTRAINTS.stat().st_mtime:
        environment = new_environment(FOLDER, interpreter.path)
        install(environment, f"{ROOT}[django]", *TOOLS, constraints=[CONSTRAINTS])
    wheel = build_wheel()
    install(environment, str(wheel), "--force-reinstall", "--no-deps", constraints=[])
    run_tests(environment, *TESTS)


@click.command()
def main() -> None:
    """Run the tests on the newest Python of this machine."""
    interpreter = newer_python(os.environ)
    if interpreter is None:
        raise click.ClickException("Django 6 needs Python 3.12; there is none on PATH or in pyenv")
    try:
        run(interpreter)
    except Failed as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"ok  {interpreter.path}")


if __name__ == "__main__":
    sys.exit(main())
