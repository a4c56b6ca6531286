"""The style rules of CONTRIBUTING.md that a machine can hold: sizes, docstrings, banned calls.

Sizes are lines of code.  Docstrings, comments and blank lines do not count, so that no explanation
is left out to keep a limit.  The limits are soft: a longer function or module that reads better
whole is an exception, with its reason in `LONG_FUNCTIONS` or `LONG_MODULES`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "sharegroup"
DEMO = ROOT / "examples" / "flights"
MODULES = sorted([*SOURCE.rglob("*.py"), *DEMO.rglob("*.py")])

FUNCTION_LINES_MAX = 50
MODULE_LINES_MAX = 500
FILE_BYTES_MAX = 200_000

LONG_FUNCTIONS: dict[str, str] = {}
"""Reasons, by ``module:function``."""
LONG_MODULES: dict[str, str] = {}
"""Reasons, by module."""

CLOCK_READERS = {
    "broker/clock.py": "the broker's one clock",
    "testing/virtual_time.py": "a clock that tests move by hand",
}
NAMED_TUPLE_METHODS = {"_asdict", "_fields", "_make", "_replace"}
OTHER_NAMES = {"broker", "client", "spark", "worker"}
"""Packages with whose names settings, events and the names of others begin, too."""
BANNED_NAMES = {"Manager", "Helper", "Util", "Impl"}


def name_of(path: Path) -> str:
    """The path of a module below `SOURCE`; in the demo, below the checkout."""
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))


ids = [name_of(path) for path in MODULES]


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
    name = name_of(path)
    text = path.read_text()
    tree = ast.parse(text)
    problems = [
        *size_problems(name, text, tree),
        *name_problems(tree),
        *call_problems(name, tree),
        *import_problems(text, tree),
    ]
    assert not problems, f"{name}: " + "; ".join(problems)


def size_problems(name: str, text: str, tree: ast.Module) -> Iterator[str]:
    if text.strip() and ast.get_docstring(tree) is None:
        yield "has no module docstring"
    code = code_lines(text, tree)
    if len(code) > MODULE_LINES_MAX and name not in LONG_MODULES:
        yield f"has {len(code)} lines of code; see LONG_MODULES beyond {MODULE_LINES_MAX}"
    for function in functions(tree):
        length = length_of(function, code)
        if length > FUNCTION_LINES_MAX and f"{name}:{function.name}" not in LONG_FUNCTIONS:
            yield (
                f"{function.name} has {length} lines of code; "
                f"see LONG_FUNCTIONS beyond {FUNCTION_LINES_MAX}"
            )


def code_lines(text: str, tree: ast.Module) -> frozenset[int]:
    """The numbers of the lines that are neither blank nor only comment or docstring."""
    explained = {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    written = {number for number, line in lines if line.strip() and line.strip()[0] != "#"}
    return frozenset(written - explained)


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef, code: frozenset[int]) -> int:
    """Its lines of code."""
    return len(code.intersection(range(function.lineno, (function.end_lineno or 0) + 1)))


def import_problems(text: str, tree: ast.Module) -> Iterator[str]:
    lines = text.splitlines()
    imports = {
        statement.lineno: range(statement.lineno, (statement.end_lineno or 0) + 1)
        for function in functions(tree)
        for statement in ast.walk(function)
        if isinstance(statement, ast.Import | ast.ImportFrom)
    }
    imported = {number for numbers in imports.values() for number in numbers}
    for first in imports:
        if not has_reason(lines, first, imported):
            yield (
                f"line {first}: an import inside a function needs its reason in a comment "
                "on the same line, or before it and the imports that follow it"
            )


def has_reason(lines: list[str], number: int, imported: set[int]) -> bool:
    """Whether a comment is at the end of this line, or before the block of imports it is in."""
    if "#" in lines[number - 1].partition("# noqa")[0]:
        return True
    while number in imported or not lines[number - 1].strip():
        number -= 1
    return lines[number - 1].lstrip().startswith("#")


def name_problems(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(node.name.endswith(bad) for bad in BANNED_NAMES):
            yield f"class {node.name}: say what it is (CONTRIBUTING.md, «Names»)"


def call_problems(name: str, tree: ast.Module) -> Iterator[str]:
    pure = name.startswith(("core/", "wire/"))
    for node in ast.walk(tree):
        if pure and isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield "core and wire never await"
    for call in calls(tree):
        if call == "print":
            yield "print: use cli/common/output.py"
        reads_clock = call.startswith("time.") and call != "time.sleep"
        broker_side = name.startswith(("core/", "wire/", "storage/", "broker/"))
        if reads_clock and broker_side and name not in CLOCK_READERS:
            yield f"{call}: time is an argument (broker/clock.py)"
        if call.endswith("datetime.now"):
            yield f"{call}: time is an argument"


def test_exceptions_are_still_needed() -> None:
    """A list of exceptions that nobody prunes stops meaning anything."""
    for name in LONG_MODULES:
        text = (SOURCE / name).read_text()
        assert len(code_lines(text, ast.parse(text))) > MODULE_LINES_MAX, name
    for key in LONG_FUNCTIONS:
        name, function_name = key.split(":")
        text = (SOURCE / name).read_text()
        tree = ast.parse(text)
        code = code_lines(text, tree)
        lengths = [
            length_of(function, code)
            for function in functions(tree)
            if function.name == function_name
        ]
        assert any(length > FUNCTION_LINES_MAX for length in lengths), key


def test_no_modules_import_each_other() -> None:
    """Imports for type checkers count, too: a reader follows them all the same."""
    graph = grimp.build_graph("examples", "sharegroup")
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imported).prepare()  # Raises a CycleError that names the modules.


def test_waits_do_not_lose_a_cancellation() -> None:
    """Python 3.11's `wait_for` ends without an error if what it waits for comes with the cancel."""
    using = [
        str(path)
        for path in (ROOT / "src").rglob("*.py")
        if "asyncio.wait_for(" in path.read_text()
    ]
    assert using == [], "use asyncio.timeout"


def test_private_attributes_of_aiokafka_are_not_used() -> None:
    using = {
        name_of(path): private
        for path in MODULES
        if ("worker/transport" in str(path) or "aiokafka" in path.read_text())
        and (tree := ast.parse(path.read_text()))
        and ("worker/transport" in str(path) or "aiokafka" in imported_packages(tree))
        and (private := set(foreign_private_attributes(tree)))
    }
    assert using == {}


def imported_packages(tree: ast.Module) -> set[str]:
    """The first part of the name of everything that is imported."""
    names = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def foreign_private_attributes(tree: ast.Module) -> Iterator[str]:
    """The private attributes of anything but ``self`` and ``cls``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
            continue
        is_own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
        if not is_own and not node.attr.endswith("__") and node.attr not in NAMED_TUPLE_METHODS:
            yield node.attr


@pytest.mark.parametrize("folder", [SOURCE, ROOT / "docs"], ids=["source", "docs"])
def test_modules_that_texts_name_exist(folder: Path) -> None:
    texts = [*folder.rglob("*.py"), *folder.rglob("*.md")]
    missing = {
        str(path.relative_to(ROOT)): names
        for path in texts
        if (names := [name for name in named_modules(path.read_text()) if not exists(name)])
    }
    assert missing == {}


def named_modules(text: str) -> Iterator[str]:
    """The names in backquotes that begin with a package of ours, as ``core.groups.classic``."""
    for name in re.findall(r"`(?:sharegroup\.)?([a-z_]+(?:\.\w+)+)(?:\(\))?`", text):
        first, second = name.split(".")[:2]
        is_module = (SOURCE / first / second).is_dir() or (SOURCE / first / f"{second}.py").exists()
        if second != "py" and (SOURCE / first).is_dir() and (is_module or first not in OTHER_NAMES):
            yield name


def exists(name: str) -> bool:
    """Whether a module has this name, or a module the text of the last parts."""
    path = SOURCE
    for part in name.split("."):
        module = path if path.suffix else path / "__init__.py"
        if (path / part).is_dir():
            path /= part
        elif (path / f"{part}.py").exists():
            path /= f"{part}.py"
        elif not re.search(rf"\b{part}\b", module.read_text()):
            return False
    return True


def test_missing_module_in_a_text_is_found() -> None:
    text = "`core.share_group.ShareGroups`, `wire.codec`, ``broker.clock.Clocks``, `client.id`"
    assert [name for name in named_modules(text) if not exists(name)] == [
        "core.share_group.ShareGroups",
        "broker.clock.Clocks",
    ]


def test_comments_and_docstrings_do_not_count_as_code() -> None:
    text = '"""A module."""\n\n# Why.\nNUMBER = 1\n"""What it is,\nin two lines."""\nTEXT = "a"\n'
    assert code_lines(text, ast.parse(text)) == {4, 7}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def f():\n    import a\n", [2]),
        ("def f():\n    import a  # Why.\n", []),
        ("def f():\n    import a  # noqa: PLC0415\n", [2]),
        ("def f():\n    # Why.\n    import a\n\n    from b import c\n", []),
        ("def f():\n    # Why.\n    from a import (\n        b,\n    )\n    import c\n", []),
        ("def f():\n    # Why.\n    a = 1\n    from b import c\n", [4]),
        ("import a\n\ndef f():\n    return a\n", []),
    ],
)
def test_import_inside_a_function_needs_its_reason(text: str, lines: list[int]) -> None:
    problems = import_problems(text, ast.parse(text))
    assert [int(problem.split()[1].rstrip(":")) for problem in problems] == lines


def test_no_large_file_in_the_source() -> None:
    large = [path for path in SOURCE.rglob("*") if path.stat().st_size > FILE_BYTES_MAX]
    assert large == []
