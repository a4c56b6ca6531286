"""Mutate the core and see which changes no test notices: ``python -m tests.mutants [module ...]``.

`mutmut` makes the changes and runs, for each, the tests that reach the changed function; this
gives it a copy of the source and of the fast tests (unit tests and transcripts of the core, and
its models with few examples), so that the checkout may change meanwhile.  It changes the bodies
of plain functions and methods: not constants, and nothing under a decorator.  What survives is
in `survivors.md`, with the reason.

Needs ``pip install mutmut``; the whole core takes an hour, a module a few minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = Path("src/sharegroup/core")
TESTS = ("tests/unit/core", "tests/model", "tests/transcripts")
COPIED = ("src", "tests/__init__.py", "tests/conftest.py", "tests/unit/__init__.py", *TESTS)
LEFT_OUT = (
    # About storage, too.
    "tests/model/test_compaction.py",
    "tests/model/test_partition_log.py",
)
COUNTS_CALLS = (
    "tests/unit/core/test_share_partition_scale.py"
    "::test_cost_of_operations_is_the_same_at_two_hundred_thousand_runs"
)
"""Of functions; and every mutated one is called through another."""

EXAMPLES = 10
"""Of each model's histories: most changes are noticed by the first."""


def configuration(modules: Sequence[str]) -> str:
    mutated = [f"{CORE}/{module}.py" for module in modules] or [f"{CORE}/*"]
    tests = [*TESTS, *(f"--ignore={path}" for path in LEFT_OUT)]
    options = ["-p", "no:randomly", "--hypothesis-seed=1", f"--deselect={COUNTS_CALLS}"]
    return f"""\
[tool.mutmut]
source_paths = ["src"]
only_mutate = {mutated}
pytest_add_cli_args = {options}
pytest_add_cli_args_test_selection = {tests}
"""


def prepare(folder: Path, modules: Sequence[str]) -> None:
    """Copy what is mutated and its tests; results of an earlier run are kept."""
    for name in COPIED:
        source, copy = ROOT / name, folder / name
        if source.is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    settings = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(settings + "\n" + configuration(modules))


def results(folder: Path) -> dict[str, str]:
    """What became of each mutant, by its name."""
    shown = mutmut(folder, "results", "--all", "true", capture=True)
    pairs = (line.strip().rpartition(": ") for line in shown.splitlines() if ": " in line)
    return {name: fate for name, _, fate in pairs if name.startswith("sharegroup.")}


def mutmut(folder: Path, *arguments: str, capture: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", *arguments],
        cwd=folder,
        env=os.environ | {"MODEL_EXAMPLES": str(EXAMPLES)},
        stdout=subprocess.PIPE if capture else None,
        text=True,
        check=True,
    )
    return done.stdout or ""


def report(fates: dict[str, str]) -> None:
    """One line for each module, then every change that nobody noticed."""
    by_module: dict[str, Counter[str]] = {}
    for name, fate in fates.items():
        by_module.setdefault(".".join(name.split(".")[2:4]), Counter())[fate] += 1
    for module, counts in sorted(by_module.items()):
        print(f"{module:28} {counts.total():5}", dict(counts.most_common()))
    for name, fate in fates.items():
        if fate in ("survived", "no tests"):
            print(f"{fate:10} {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    names = "modules of core, as in share_partition/delivery; all of them if none"
    parser.add_argument("modules", nargs="*", help=names)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if find_spec("mutmut") is None:
        sys.exit("mutmut is not installed: pip install mutmut")
    prepare(arguments.folder, arguments.modules)
    mutmut(arguments.folder, "run", "--max-children", str(arguments.processes))
    report(results(arguments.folder))


if __name__ == "__main__":
    main()
