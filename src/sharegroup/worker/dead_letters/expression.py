"""``--where 'total < 0 and customer.country == "DE"'``: a question about a JSON value.

The grammar is a small part of Python's, read by Python's own parser and run by nothing but the
functions below: names, attributes, subscripts, constants, lists, comparisons, ``in``, ``and``,
``or``, ``not``.  No call, no arithmetic, no loop: whatever is asked costs about what it is long.

    total, customer.country, items[0].sku, tags["odd name"]     fields; _ is the whole value
    == != < <= > >= in, not in                                  also chained: 0 < total <= 9
    "text"  1.5  True  None  ["DE", "FR"]                       true, false, null work as well

It is total: a field that is not there is None, and an order between things that have none is
false, so that one odd letter among many never ends a run.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TEXT_CHARACTERS_MAX = 2_000
WHOLE = "_"
CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}

Evaluate = Callable[[Any], Any]


def _within(one: Any, many: Any) -> bool:
    if isinstance(many, str):
        return isinstance(one, str) and one in many
    if isinstance(many, Mapping):
        return isinstance(one, str) and one in many
    return isinstance(many, list) and one in many


COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: _within,
    ast.NotIn: lambda one, many: not _within(one, many),
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}


class ExpressionError(ValueError):
    """It is none: what of it, and what may stand there."""


class Expression:
    """See the module's text; ``holds`` takes a record's value as bytes."""

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ExpressionError(f"longer than {TEXT_CHARACTERS_MAX} characters: {len(text)}")
        try:
            tree = ast.parse(text.strip(), mode="eval")
            self._evaluate = _compiled(tree.body)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"{text!r}: {error}") from error
        self.text = text

    def holds(self, value: bytes | None) -> bool:
        """Whether it is true of this value; false of one that is not JSON."""
        if value is None:
            return False
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            return False
        return bool(self._evaluate(document))


def _compiled(node: ast.expr) -> Evaluate:
    """A function of the document, for one node and all below it."""
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
            parts = [_compiled(one) for one in values]
            every = all if isinstance(junction, ast.And) else any
            return lambda document: every(part(document) for part in parts)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            each = [_compiled(one) for one in items]
            return lambda document: [one(document) for one in each]
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _comparison([_compiled(one) for one in (left, *comparators)], ops)
    raise ValueError(
        f"{ast.unparse(node)!r} is not offered: only fields, constants, comparisons, "
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
    """A field of an object, or an item of a list; None when there is none."""

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
                step(one, other)
                for step, one, other in zip(steps, values, values[1:], strict=False)
            )
        except TypeError:  # Of things that have no order, none is the smaller.
            return False

    return compare
