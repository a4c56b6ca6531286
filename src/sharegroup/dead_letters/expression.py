"""Filter expressions on JSON values: ``--where 'total < 0 and customer.country == "DE"'``.

The grammar is a small part of Python's: names, attributes, subscripts, constants, lists,
comparisons, ``in``, ``and``, ``or``, ``not``.  Python's parser reads it, and only the functions
below evaluate it.  Without calls, arithmetic and loops, the cost is limited by the length of the
expression.

    total, customer.country, items[0].sku, tags["odd name"]     fields; _ is the whole value
    == != < <= > >= in, not in                                  also chained: 0 < total <= 9
    "text"  1.5  True  None  ["DE", "FR"]                       true, false, null work as well

Evaluation never fails, so an unusual letter does not end a run.  A missing field is None, and a
comparison of values that have no order is false.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TEXT_CHARACTERS_MAX = 2_000
WHOLE = "_"
EXAMPLE = 'amount > 100 and city == "Oslo"'
CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}

Evaluate = Callable[[Any], Any]


def _within(member: Any, container: Any) -> bool:
    if isinstance(container, str):
        return isinstance(member, str) and member in container
    if isinstance(container, Mapping):
        return isinstance(member, str) and member in container
    return isinstance(container, list) and member in container


COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: _within,
    ast.NotIn: lambda member, container: not _within(member, container),
    # Python programmers write `is None`; values that were read from JSON have no identity.
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}


class ExpressionError(ValueError):
    """A text is not a valid expression; the message says which part, and what is allowed."""


class Expression:
    """A compiled filter expression on a record's value."""

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ExpressionError(f"longer than {TEXT_CHARACTERS_MAX} characters: {len(text)}")
        try:
            tree = ast.parse(text.strip(), mode="eval")
            self._evaluate = _compiled(tree.body)
        except SyntaxError as error:
            raise ExpressionError(
                f"{text!r} is no expression ({error.msg}); expected one like {EXAMPLE}"
            ) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"{text!r}: {error}") from error
        self.text = text

    def holds(self, value: bytes | None) -> bool:
        """Whether the expression is true for this value; False if the value is not JSON."""
        if value is None:
            return False
        try:
            return bool(self._evaluate(json.loads(value)))
        # Of a value or an expression that nests deeply; how deeply depends on the caller's stack.
        except (ValueError, RecursionError):
            return False


def _compiled(node: ast.expr) -> Evaluate:
    """Compile a node and its children to a function of the document."""
    match node:
        case ast.Constant(value=constant) if constant is None or isinstance(
            constant, bool | int | float | str
        ):
            return lambda _: constant
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda _: -number
        case ast.Name(id=name):
            return _name(name)
        case ast.Attribute(value=inner, attr=name):
            return _part(_compiled(inner), name)
        case ast.Subscript(value=inner, slice=ast.Constant(value=int() | str() as key)):
            return _part(_compiled(inner), key)
        case ast.Subscript(
            value=inner, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(key)))
        ):
            return _part(_compiled(inner), -key)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            negated = _compiled(inner)
            return lambda document: not negated(document)
        case ast.BoolOp(op=junction, values=values):
            parts = [_compiled(operand) for operand in values]
            every = all if isinstance(junction, ast.And) else any
            return lambda document: every(part(document) for part in parts)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            elements = [_compiled(operand) for operand in items]
            return lambda document: [operand(document) for operand in elements]
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _comparison([_compiled(operand) for operand in (left, *comparators)], ops)
    raise ValueError(
        f"{ast.unparse(node)!r} is not supported: only fields, constants, comparisons, "
        "in, and, or, not"
    )


def _name(name: str) -> Evaluate:
    if name == WHOLE:
        return lambda document: document
    if name in CONSTANTS:
        constant = CONSTANTS[name]
        return lambda _: constant
    return _part(lambda document: document, name)


def _part(inner: Evaluate, key: str | int) -> Evaluate:
    """Access a field of an object or an item of a list; None if it is missing."""

    def get(document: Any) -> Any:
        whole = inner(document)
        if isinstance(key, str):
            return whole.get(key) if isinstance(whole, dict) else None
        within = isinstance(whole, list) and -len(whole) <= key < len(whole)
        return whole[key] if within else None

    return get


def _comparison(sides: Sequence[Evaluate], ops: Sequence[ast.cmpop]) -> Evaluate:
    steps = [COMPARISONS[type(op)] for op in ops]

    def compare(document: Any) -> bool:
        values = [side(document) for side in sides]
        try:
            return all(
                step(left, right)
                for step, left, right in zip(steps, values, values[1:], strict=False)
            )
        except TypeError:  # The values have no order.
            return False

    return compare
