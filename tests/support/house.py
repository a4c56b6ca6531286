"""Prints how large the code base is, and how many arrows are between its boxes (`make house`).

A box is a file or a folder that lies directly in a package; an arrow goes from a box to another one
that it imports anywhere, in functions and for type checkers, too.  Packages' own ``__init__`` are
no boxes.  Lines include blank ones and docstrings; a comment line has nothing but a comment.

    python -m tests.support.house [ROOT]    ROOT contains the package; src by default
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grimp

PACKAGE = "sharegroup"
ROOMS = ("broker", "cli", "wire", "core", "client", "worker", "storage", "spark")
PARAMETERS_MAX = 6
SMALL_FILE_LINES = 50
BLOCKING = ("client", "sync")
"""The package of the blocking clients."""


class Source(NamedTuple):
    """A module and what is counted in it."""

    path: Path
    lines: int
    import_lines: int
    comment_lines: int
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    classes: list[str]


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src").resolve()
    for name, value in figures(root):
        print(f"{name:46} {value:>9}")


def figures(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table for the package below ``root``."""
    sources = [read_source(path) for path in sorted((root / PACKAGE).rglob("*.py"))]
    lines = sum(source.lines for source in sources)
    comments = sum(source.comment_lines for source in sources)
    imports = sum(source.import_lines for source in sources)
    yield "modules", f"{len(sources):,}"
    yield (
        f"modules under {SMALL_FILE_LINES} lines",
        str(sum(0 < source.lines < SMALL_FILE_LINES for source in sources)),
    )
    yield "lines", f"{lines:,}"
    yield "lines that are no comments", f"{lines - comments:,}"
    yield "comment lines", f"{comments / lines:.1%}"
    yield "lines of imports", f"{imports / lines:.1%}"
    yield from function_figures(sources)
    for room, names in repeated_classes(root / PACKAGE, sources).items():
        yield f"class names used twice in {room}", f"{len(names)}"
    yield from room_figures(root)


def read_source(path: Path) -> Source:
    """Read a module and count its parts."""
    text = path.read_text()
    tree = ast.parse(text)
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return Source(
        path,
        text.count("\n"),
        sum(
            node.end_lineno - node.lineno + 1
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom) and node.end_lineno
        ),
        sum(1 for line in comment_lines(text)),
        functions,
        [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)],
    )


def comment_lines(text: str) -> Iterator[str]:
    """Yield the lines that have nothing but a comment."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            yield token.line


def function_figures(sources: list[Source]) -> Iterator[tuple[str, str]]:
    """Yield how long functions are, without docstrings, and how many take many parameters."""
    functions = [function for source in sources for function in source.functions]
    lengths = sorted(body_lines(function) for function in functions)
    yield "function lines, median", f"{statistics.median(lengths):g}"
    yield "function lines, p90", str(lengths[len(lengths) * 9 // 10])
    yield "function lines, maximum", str(lengths[-1])
    yield (
        f"functions with more than {PARAMETERS_MAX} parameters",
        str(sum(parameters(function) > PARAMETERS_MAX for function in functions)),
    )


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its docstring."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of parameters, without ``self`` and ``cls``."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in every)


def repeated_classes(package: Path, sources: list[Source]) -> dict[str, list[str]]:
    """Return the names of classes that stand more than once within a room, by room."""
    rooms: dict[str, Counter[str]] = {}
    for source in sources:
        parts = source.path.relative_to(package).parts
        # A blocking client has the name of its asyncio twin on purpose: a program that changes from
        # one to the other changes an import only.  So the blocking ones count as a room of their
        # own.
        room = "client.sync" if parts[:2] == BLOCKING else parts[0].removesuffix(".py")
        rooms.setdefault(room, Counter()).update(source.classes)
    repeated = {
        room: sorted(name for name, count in names.items() if count > 1)
        for room, names in rooms.items()
    }
    return {room: names for room, names in repeated.items() if names}


def room_figures(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the number of boxes and arrows of each room."""
    sys.path.insert(0, str(root))
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    for room in ROOMS:
        parent = f"{PACKAGE}.{room}"
        boxes = graph.find_children(parent)
        arrows = {
            (box, other)
            for module in graph.find_descendants(parent)
            for imported in graph.find_modules_directly_imported_by(module)
            if imported.startswith(parent + ".")
            and (box := box_of(module, parent)) != (other := box_of(imported, parent))
        }
        yield f"boxes and arrows of {room}", f"{len(boxes)} {len(arrows):4}"


def box_of(module: str, parent: str) -> str:
    """The box of a module in a package."""
    return module.removeprefix(parent + ".").partition(".")[0]


if __name__ == "__main__":
    main()
