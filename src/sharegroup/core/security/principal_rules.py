"""Turns the subject of a client's certificate into the name of a user.

The rules are those of Kafka's ``ssl.principal.mapping.rules``:

    RULE:^CN=(.*?),OU=billing.*$/$1/L,RULE:^.*UID=(.*?),.*$/$1/,DEFAULT

A rule has a pattern that must match the whole subject, a replacement, and ``L`` or ``U`` for lower
or upper case.  ``DEFAULT`` is the subject itself.  The first rule that matches counts.  A subject
that no rule matches has no user, so its connection is refused.

Patterns are Java's regular expressions, of which Python's ``re`` knows all but some rare forms.
``re`` may take exponential time for a group that is repeated and contains a repetition.  Such
patterns are refused, and subjects are at most `SUBJECT_CHARACTERS_MAX` long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sharegroup.errors import InvalidConfig

KEY = "ssl.principal.mapping.rules"
SUBJECT_CHARACTERS_MAX = 512
_RULES_MAX = 100

_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)\s*(?:,|$)")
_DEFAULT = re.compile(r"DEFAULT\s*(?:,|$)")
_REFERENCE = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)", re.DOTALL)
_REPETITION = re.compile(r"[*+]|\{\d+,\d*\}")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; ``pattern`` is None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        """Return the name of the user; None if the rule does not match."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(_expansion(self.replacement), subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class PrincipalRules:
    """The rules of one listener, in order."""

    __slots__ = ("_rules",)

    def __init__(self, text: str) -> None:
        """Parse the rules; raise InvalidConfig for a rule that is invalid or may take too long."""
        self._rules = tuple(_parsed(text))
        if not 0 < len(self._rules) <= _RULES_MAX:
            raise InvalidConfig(
                f"{KEY} must have 1 to {_RULES_MAX} rules, not {len(self._rules)}: DEFAULT takes "
                "the subject itself"
            )

    def name_of(self, subject: str) -> str | None:
        """Return the name of the user with this subject; None if no rule matches."""
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            return None
        for rule in self._rules:
            name = rule.apply(subject)
            if name:
                return name
        return None


def _parsed(text: str) -> Iterator[_Rule]:
    rest = text.strip()
    while rest:
        if found := _DEFAULT.match(rest):
            yield _Rule(None, "", "")
        elif found := _RULE.match(rest):
            pattern, replacement, case = found.groups()
            yield _Rule(_compiled(pattern), replacement, case)
        elif rest.startswith(","):
            rest = rest[1:].lstrip()
            continue
        else:
            raise InvalidConfig(
                f"{KEY} must have rules like RULE:pattern/replacement/L and DEFAULT, separated by "
                f"commas, not {rest[:200]!r}"
            )
        rest = rest[found.end() :].lstrip()


def _compiled(pattern: str) -> re.Pattern[str]:
    if _has_nested_repetition(pattern):
        raise InvalidConfig(
            f"{KEY}: the pattern {pattern[:200]!r} repeats a group that contains a repetition, "
            "which may take exponential time; write it without the outer or the inner repetition"
        )
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern))
    except re.error as error:
        raise InvalidConfig(f"{KEY}: the pattern {pattern[:200]!r}: {error}") from error


def _has_nested_repetition(pattern: str) -> bool:
    """Return whether a repeated group contains a repetition."""
    groups = [False]
    """For each open group, whether it contains a repetition."""
    at, is_set = 0, False
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 2
            continue
        if is_set:
            is_set = character != "]"
        elif character == "[":
            is_set = True
            at += 1 + pattern.startswith("^", at + 1)  # A bracket that comes first is a character.
        elif character == "(":
            groups.append(False)
        elif character == ")" and len(groups) > 1:
            contains = groups.pop()
            if contains and _REPETITION.match(pattern, at + 1):
                return True
            groups[-1] |= contains
        elif _REPETITION.match(pattern, at):
            groups[-1] = True
        at += 1
    return False


def _expansion(replacement: str) -> Callable[[re.Match[str]], str]:
    """Return a function that makes the replacement of a match.

    As in Kafka, a reference to a group that does not exist is text.
    """

    def expand(match: re.Match[str]) -> str:
        def reference(found: re.Match[str]) -> str:
            escaped, name, digits = found.groups()
            if escaped is not None:
                return escaped
            if name is not None:
                return match[name] or "" if name in match.re.groupindex else found[0]
            for length in range(len(digits), 0, -1):
                if int(digits[:length]) <= match.re.groups:
                    return (match[int(digits[:length])] or "") + digits[length:]
            return found[0]

        return _REFERENCE.sub(reference, replacement)

    return expand
