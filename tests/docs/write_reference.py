"""Writes docs/worker-reference.md from the docstrings of what `sharegroup.worker` offers.

It reads the source and imports nothing, so what it writes is the same with every Python.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "sharegroup"
SECTIONS = {
    "Declaring": (
        "App", "share_group", "consumer_group", "Routed", "Retry", "DeadLetter",
        "BrokerDeadLetter", "RateLimit",
        "Batching", "Holding", "Expiry", "CircuitBreaker", "Payload", "Registry", "Route",
    ),
    "Values of options and reasons": (
        "StartFrom", "OnFailure", "RouteKind", "OnUnreadable", "SchemaFormat", "DeadLetterReason",
        "Missed",
    ),
    "In a handler": ("Record", "Context", "Reject", "Release", "RetryAfter", "SomeFailed"),
    "Around handlers": ("Call", "Proceed", "Event"),
    "What goes wrong": ("HandlingTimeout", "HandlerCrashed", "UnreadablePayload", "NotConnected"),
    "Sending": ("worker.sender.Sender", "SentBefore"),
    "Return values": (
        *("Result", "ResultState", "AskFailed", "AskTimeout", "AskEnded", "TooManyAsks"),
    ),
    "Stores": (
        "Store", "MemoryStore", "SqliteStore", "PostgresStore", "RedisStore",
        "Reserved", "Held", "Confirmed", "StoreUnavailable",
    ),
    "Schedules": (
        "ScheduledRun", "worker.scheduling.schedule_commands.ScheduleCommands",
    ),
    "Tests": (
        "worker.testing.app_test.AppTest", "worker.testing.history.SentRecord",
        "worker.testing.history.Outcome",
    ),
    "Stopping": ("worker.running.worker.StopReport",),
}  # fmt: skip
"""Names of `sharegroup.worker`, or module and name of what these give."""

GIVEN = {
    "Routed",
    "Record",
    "Call",
    "Event",
    "Route",
    "Sender",
    "AppTest",
    "ScheduleCommands",
    "ScheduledRun",
    "SentRecord",
    "StopReport",
}
"""What nobody makes but the worker, so that how it is made is nobody's business."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def reference() -> Iterator[str]:
    """The lines below the heading."""
    yield "Every name that `sharegroup.worker` offers, and what its functions give, in the words of"
    yield "the code. [Workers](worker.md) explains how they belong together, and has a table of"
    yield "all [options](worker.md#options)."
    modules = exported()
    for title, names in SECTIONS.items():
        yield f"\n## {title}"
        for name in names:
            module, _, short = name.rpartition(".")
            yield from entry(module or modules[name], short)


def exported() -> dict[str, str]:
    """By public name: the module that it is in, below `sharegroup`."""
    tree = ast.parse((SOURCE / "worker" / "__init__.py").read_text())
    found = {
        name.name: (imported.module or "").removeprefix("sharegroup.")
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for imported in node.body
        if isinstance(imported, ast.ImportFrom)
        for name in imported.names
    }
    assert found, "sharegroup.worker imports no names for type checkers"
    return found


def entry(module: str, name: str) -> Iterator[str]:
    """One name: its signature, its text, its members."""
    tree = ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text())
    yield f"\n### {name}\n"
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        match node:
            case ast.ClassDef(name=found) if found == name:
                yield from class_entry(node)
                return
            case ast.FunctionDef(name=found) if found == name and not is_overload(node):
                yield f"```python\n{signature(node)}\n```\n"
                yield text_of(ast.get_docstring(node))
                return
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                yield f"`{ast.unparse(value)}`. {text_of(string(after))}"
                return
            case _:
                pass
    raise AssertionError(f"there is no {name} in {module}")


def class_entry(node: ast.ClassDef) -> Iterator[str]:
    made = next((function for function in functions(node) if function.name == "__init__"), None)
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    if node.name not in GIVEN:
        keywords = fields(node) if made is None else arguments(made)
        is_plain = bases and not keywords
        yield "```python"
        yield f"class {node.name}({bases})" if is_plain else f"{node.name}({keywords})"
        yield "```\n"
    yield text_of(ast.get_docstring(node))
    if bases == "StrEnum":
        members = list(enum_members(node.body))
    else:
        members = [*attributes(node.body), *(attributes(made.body) if made is not None else ())]
    members += methods(node)
    if members:
        yield "\n" + "\n".join(members)


def methods(node: ast.ClassDef) -> Iterator[str]:
    for function in functions(node):
        if ".setter" in decorators(function):
            continue  # Its property stands for both.
        if is_overload(function) or (function.name.startswith("_") and function.name != "__call__"):
            continue
        shown = function.name if "property" in decorators(function) else signature(function)
        yield f"- `{shown}`: {in_line(ast.get_docstring(function))}"


def functions(node: ast.ClassDef) -> Iterator[Function]:
    """Of a class, also those that are only there for a type checker or only not."""
    for statement in node.body:
        if isinstance(statement, Function):
            yield statement


def attributes(body: list[ast.stmt]) -> Iterator[str]:
    """What has a text of its own behind it."""
    for node, after in pairwise(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or (text := string(after)) is None:
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        name = ast.unparse(target).removeprefix("self.")
        if not name.startswith("_"):
            yield f"- `{name}`: {in_line(text)}"


def enum_members(body: list[ast.stmt]) -> Iterator[str]:
    """Each member of an enum with its value, and with its text if it has one."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign):
            text = string(after)
            end = "" if text is None else f": {in_line(text)}"
            yield f"- `{ast.unparse(node)}`{end}"


def fields(node: ast.ClassDef) -> str:
    """Of a dataclass or a NamedTuple, as arguments."""
    shown = []
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            value = "" if statement.value is None else ast.unparse(statement.value)
            if "init=False" in value or statement.target.id.startswith("_"):
                continue
            if value.startswith("field("):
                value = "..." if "default" in value else ""
            end = f" = {value}" if value else ""
            shown.append(f"{statement.target.id}: {ast.unparse(statement.annotation)}{end}")
    only = "kw_only=True" in " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    return ", ".join(["*", *shown] if only and shown else shown)


def signature(node: Function) -> str:
    word = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    gives = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    if "asynccontextmanager" in decorators(node):
        word, gives = "async with ", ""
    return f"{word}{node.name}({arguments(node)}){gives}"


def arguments(node: Function) -> str:
    """Of a call, as they are written: without ``self``, and without what refuses all others."""
    given = node.args
    first = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(first) - len(given.defaults))
    shown = [
        argument(shown_argument, default)
        for shown_argument, default in zip(first, [*defaults, *given.defaults], strict=True)
        if shown_argument.arg != "self"
    ]
    if given.vararg is not None:
        shown.append(f"*{argument(given.vararg, None)}")
    elif given.kwonlyargs:
        shown.append("*")
    shown += map(argument, given.kwonlyargs, given.kw_defaults)
    if given.kwarg is not None and given.kwarg.arg != "unknown":
        shown.append(f"**{argument(given.kwarg, None)}")
    return ", ".join(shown)


def argument(parameter: ast.arg, default: ast.expr | None) -> str:
    kind = "" if parameter.annotation is None else f": {ast.unparse(parameter.annotation)}"
    return f"{parameter.arg}{kind}" + ("" if default is None else f" = {ast.unparse(default)}")


def decorators(node: Function) -> str:
    return " ".join(ast.unparse(decorator) for decorator in node.decorator_list)


def is_overload(node: Function) -> bool:
    return "overload" in decorators(node)


def string(node: ast.stmt | None) -> str | None:
    """The text behind an assignment."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
    return None


def text_of(docstring: str | None) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", docstring or "")


def in_line(docstring: str | None) -> str:
    return " ".join(text_of(docstring).split())
