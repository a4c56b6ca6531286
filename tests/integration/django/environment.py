"""Run the tests of this folder with Django 6: `python -m tests.integration.django.environment`.

Django 6 needs Python 3.12, and the oldest Python that sharegroup supports is 3.11.  The environment
is in build/django; one that is there stays, unless constraints.txt is newer.
"""

from __future__ import annotations

import sys

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
    local_pythons,
    new_environment,
    run_tests,
)

OLDEST = (3, 12)
FOLDER = BUILD / "django"
TOOLS = ("hypothesis", "psutil", "psycopg[binary]", "pytest", "pytest-randomly", "pytest-xdist")
TESTS = ("tests/integration/django", "tests/unit/django")


def newer_python() -> Interpreter | None:
    """Return the newest Python of this machine, if Django 6 runs on it; None otherwise."""
    newest = next(reversed(local_pythons().values()), None)
    return newest if newest is not None and newest.version[:2] >= OLDEST else None


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
    interpreter = newer_python()
    if interpreter is None:
        raise click.ClickException("Django 6 needs Python 3.12; there is none on PATH or in pyenv")
    try:
        run(interpreter)
    except Failed as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"ok  {interpreter.path}")


if __name__ == "__main__":
    sys.exit(main())
