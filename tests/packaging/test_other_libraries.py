"""Importing sharegroup must not change how aiokafka, kio and crc32c import.

A user's process imports these libraries too. Each test runs one fresh interpreter that imports a
package of ours and then forks a process per submodule, so each submodule is imported in a process
where sharegroup was imported and nothing else was.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

from tests.support.chosen_broker import sample
from tests.support.limits import HANGING_SECONDS

OURS = [
    "sharegroup.testing",
    "sharegroup.broker.app",
    "sharegroup.cli.broker.serve",
    "sharegroup.client",
    "sharegroup.spark",
    "sharegroup.worker",
]
"""The first one imports broker and client."""

PROGRAM = """
import importlib, json, os, sys

ours, names = sys.argv[1], sys.argv[2:]
if ours:
    module = importlib.import_module(ours)
    for name in getattr(module, "__all__", ()):
        getattr(module, name)

def outcome(name):
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        return said
    try:
        said = " ".join(sorted(vars(importlib.import_module(name))))
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
    with open(writing, "w", encoding="utf-8") as pipe:
        pipe.write(said)
    os._exit(0)

print(json.dumps({name: outcome(name) for name in names}))
"""

SUBMODULES = """
import importlib, json, pkgutil

def names(package):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            yield found.name

packages = [importlib.import_module(name) for name in ("aiokafka", "crc32c")]
print(json.dumps([name for package in packages for name in (package.__name__, *names(package))]))
"""

STRATEGIES = """
import importlib, json, sys

if sys.argv[1]:
    module = importlib.import_module(sys.argv[1])
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
from hypothesis import strategies
from kio.static import primitive
types = (primitive.i8, primitive.i16, primitive.i32, primitive.i64, primitive.PhantomStr)
print(json.dumps([repr(strategies.from_type(kind).wrapped_strategy) for kind in types]))
"""


@cache
def submodules() -> tuple[str, ...]:
    names = tuple(printed(SUBMODULES))
    assert {"aiokafka.consumer.fetcher", "aiokafka.client", "crc32c._crc32c"} <= set(names)
    return names


@cache
def imported_alone() -> dict[str, str]:
    outcomes = printed(PROGRAM, "", *submodules())
    assert "AIOKafkaConsumer" in outcomes["aiokafka.consumer"].split()
    return outcomes


@cache
def strategies_alone() -> object:
    return printed(STRATEGIES, "")


def printed(program: str, *arguments: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        check=True,
        timeout=HANGING_SECONDS,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("ours", sample(OURS))
def test_every_submodule_imports_with_the_same_names_after_ours(ours: str) -> None:
    """The names are a submodule's own; a package has its imported submodules as names, too."""
    after = printed(PROGRAM, ours, *submodules())
    assert {
        name: missing
        for name, alone in imported_alone().items()
        if (missing := set(alone.split()) - set(after[name].split()))
    } == {}


@pytest.mark.parametrize("ours", OURS)
def test_hypothesis_has_strategies_for_kio_after_ours(ours: str) -> None:
    assert strategies_alone()[0] == "integers(-128, 127)"
    assert printed(STRATEGIES, ours) == strategies_alone()


@pytest.mark.parametrize("ours", OURS)
def test_ours_leaves_no_module_blocked(ours: str) -> None:
    program = (
        f"import json, sys, {ours}\n"
        "print(json.dumps([name for name, module in sys.modules.items() if module is None]))"
    )
    assert printed(program) == []
