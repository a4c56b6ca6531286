"""What the site shows of the code: docstrings, and methods that are made of other functions.

Examples with ``>>>`` become blocks of code: Markdown would read them as quotations, and their lists
as links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import (
    Attribute,
    Class,
    ExprAttribute,
    ExprCall,
    ExprName,
    Extension,
    Function,
    Module,
    Object,
    Parameter,
    Parameters,
)

_SESSION = re.compile(r"^(?P<indent> *)>>> (?:.*\n?)(?:^(?! *$).*\n?)*", re.MULTILINE)


class Sessions(Extension):
    """Puts interactive sessions of docstrings into fences."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


class MadeMethods(Extension):
    """Shows ``poll = blocking(Consumer.poll)`` as the method that it is: signature and docstring.

    Otherwise the site, which does not run the code, would show nothing of such a method.
    """

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        """Replace the attributes of all classes that are made of functions."""
        for module in modules_of(pkg):
            for kind in [*module.classes.values()]:
                if isinstance(kind, Class):
                    for name, member in [*kind.members.items()]:
                        if isinstance(member, Attribute) and (function := made_of(member)):
                            kind.set_member(name, method_like(function, member))


def modules_of(module: Module) -> Iterator[Module]:
    """A module and all modules below it."""
    yield module
    for below in module.modules.values():
        if isinstance(below, Module):
            yield from modules_of(below)


def made_of(member: Attribute) -> Function | None:
    """The function of which an attribute of a class is made; None if it is something else."""
    value = member.value
    if isinstance(value, ExprCall) and value.arguments:
        value = value.arguments[0]
    if not isinstance(value, ExprName | ExprAttribute):
        return None
    try:
        source = member.modules_collection[value.canonical_path]
    except KeyError:  # Not of this package.
        return None
    while source.is_alias:
        source = source.final_target
    if isinstance(source, Function):
        return source
    return made_of(source) if isinstance(source, Attribute) else None


def method_like(function: Function, member: Object) -> Function:
    """A method in the place of a member, with itself for the first parameter of the function."""
    _, *parameters = function.parameters
    return Function(
        member.name,
        lineno=member.lineno,
        endlineno=member.endlineno,
        parameters=Parameters(Parameter("self"), *parameters),
        returns=function.returns,
        docstring=function.docstring,
    )


def fenced(text: str) -> str:
    """The text with each interactive session, up to an empty line, in a fence."""
    return _SESSION.sub(
        lambda match: f"{match['indent']}```pycon\n{match[0].rstrip()}\n{match['indent']}```\n",
        text,
    )
