"""The style rules that a machine can hold (STYLE): sizes, docstrings, banned calls.

The lists of exceptions may only shrink.  An entry says what it is and why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "sharegroup"
MODULES = sorted(SOURCE.rglob("*.py"))

FUNCTION_LINES_MAX = 50
MODULE_LINES_MAX = 500
FILE_BYTES_MAX = 200_000

LONG_FUNCTIONS: dict[str, str] = {}
LONG_MODULES: dict[str, str] = {}

CLOCK_READERS = {
    "broker/clock.py": "the broker's one clock",
    "testing/clock.py": "a clock that tests move by hand",
}
BANNED_NAMES = {"Manager", "Helper", "Util", "Impl"}

ids = [str(path.relative_to(SOURCE)) for path in MODULES]


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_module_is_tidy(path: Path) -> None:
    name = str(path.relative_to(SOURCE))
    text = path.read_text()
    tree = ast.parse(text)
    problems = [
        *size_problems(name, text, tree),
        *name_problems(tree),
        *call_problems(name, tree),
    ]
    assert not problems, f"{name}: " + "; ".join(problems)


def size_problems(name: str, text: str, tree: ast.Module) -> Iterator[str]:
    if text.strip() and ast.get_docstring(tree) is None:
        yield "has no module docstring"
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX and name not in LONG_MODULES:
        yield f"has {lines} lines, {MODULE_LINES_MAX} are allowed"
    for function in functions(tree):
        length = (function.end_lineno or 0) - function.lineno + 1
        if length > FUNCTION_LINES_MAX and f"{name}:{function.name}" not in LONG_FUNCTIONS:
            yield f"{function.name} has {length} lines, {FUNCTION_LINES_MAX} are allowed"


def name_problems(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(node.name.endswith(bad) for bad in BANNED_NAMES):
            yield f"class {node.name}: say what it is (STYLE 22)"


def call_problems(name: str, tree: ast.Module) -> Iterator[str]:
    pure = name.startswith(("core/", "wire/"))
    for node in ast.walk(tree):
        if pure and isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield "core and wire never await"
    for call in calls(tree):
        if call == "print":
            yield "print: use cli/output.py"
        reads_clock = call.startswith("time.") and call != "time.sleep"
        broker_side = name.startswith(("core/", "wire/", "storage/", "broker/"))
        if reads_clock and broker_side and name not in CLOCK_READERS:
            yield f"{call}: time is an argument (broker/clock.py)"
        if call.endswith("datetime.now"):
            yield f"{call}: time is an argument"


def test_exceptions_are_still_needed() -> None:
    """A list of exceptions that nobody prunes stops meaning anything."""
    for name in LONG_MODULES:
        assert (SOURCE / name).read_text().count("\n") > MODULE_LINES_MAX, name
    for key in LONG_FUNCTIONS:
        name, function_name = key.split(":")
        tree = ast.parse((SOURCE / name).read_text())
        lengths = [
            (function.end_lineno or 0) - function.lineno + 1
            for function in functions(tree)
            if function.name == function_name
        ]
        assert any(length > FUNCTION_LINES_MAX for length in lengths), key


def test_no_large_file_in_the_source() -> None:
    large = [path for path in SOURCE.rglob("*") if path.stat().st_size > FILE_BYTES_MAX]
    assert large == []
