"""Turns the subject of a client's certificate into the name of a user.

The rules are those of Kafka's ``ssl.principal.mapping.rules``:

    RULE:^CN=(.*?),OU=billing.*$/$1/L,RULE:^.*UID=(.*?),.*$/$1/,DEFAULT

A rule has a pattern that must match the whole subject, a replacement, and ``L`` or ``U`` for lower
or upper case.  ``DEFAULT`` is the subject itself.  The first rule that matches counts.  A subject
that no rule matches has no user, so its connection is refused.

Patterns are Java's regular expressions, of which Python's ``re`` knows all but some rare forms.
The owner of a certificate may choose its subject, and ``re`` takes exponential time for some
patterns, and for others the length of the subject to the power of the repetitions:

- A repeated group that contains a repetition or alternatives is refused.
- `sharegroup.core.patterns` says in linear time whether a pattern matches; ``re`` only finds the
  groups of a match.
- A pattern that it does not know, or that has alternatives with repetitions in them, has at most
  `REPETITIONS_MAX` repetitions.
- Subjects are at most `SUBJECT_CHARACTERS_MAX` long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.core.patterns import Pattern
from sharegroup.errors import InvalidConfig, InvalidRegularExpression

KEY = "ssl.principal.mapping.rules"
SUBJECT_CHARACTERS_MAX = 512
REPETITIONS_MAX = 2
"""Number of ``*``, ``+`` and ``{n,}`` in a pattern whose matches ``re`` alone finds."""

_RULES_MAX = 100

_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)\s*(?:,|$)")
_DEFAULT = re.compile(r"DEFAULT\s*(?:,|$)")
_REFERENCE = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)", re.DOTALL)
_REPETITION = re.compile(r"[*+]|\{\d+,\d*\}")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; ``pattern`` is None for DEFAULT."""

    pattern: _Regex | None
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        """Return the name of the user; None if the rule does not match."""
        if self.pattern is None:
            return subject
        if not self.pattern.matches(subject):
            return None
        name = self.pattern.replaced(_expansion(self.replacement), subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class _Regex:
    """A pattern whose search cannot take long, whatever the subject is."""

    __slots__ = ("_anywhere", "_regex", "_whole")

    def __init__(self, pattern: str) -> None:
        """Raise InvalidConfig for a pattern that is invalid or may take too long."""
        self._regex = _compiled(pattern)
        shape = _shape(pattern)
        try:
            self._whole: Pattern | None = Pattern(pattern)
            self._anywhere: Pattern | None = Pattern(f"(.|\n)*({pattern})(.|\n)*")
        except InvalidRegularExpression:
            self._whole = self._anywhere = None
        if shape.repetitions > REPETITIONS_MAX and (self._whole is None or shape.is_ambiguous):
            raise InvalidConfig(
                f"{KEY}: the pattern {pattern[:200]!r} has {shape.repetitions} repetitions beside "
                f"alternatives or a form that cannot be matched in linear time; expected at most "
                f"{REPETITIONS_MAX}: write it without them, or as several rules"
            )

    def matches(self, subject: str) -> bool:
        """Return whether the pattern matches the whole subject."""
        if self._whole is not None and not _matches(self._whole, subject):
            return False
        return self._regex.fullmatch(subject) is not None

    def replaced(self, expansion: Callable[[re.Match[str]], str], subject: str) -> str:
        """Return the subject with all matches replaced, as by Java's ``replaceAll``."""
        pieces, end, position = [], 0, 0
        while position <= len(subject) and self._occurs_in(subject[position:]):
            match = self._regex.search(subject, position)
            if match is None:
                break
            pieces += [subject[end : match.start()], expansion(match)]
            end = match.end()
            # An empty match would be found again at the same place.
            position = end + (match.start() == end)
        return "".join([*pieces, subject[end:]])

    def _occurs_in(self, rest: str) -> bool:
        return self._anywhere is None or _matches(self._anywhere, rest)


def _matches(pattern: Pattern, text: str) -> bool:
    pattern.steps_taken = 0  # The limit is for one text, not for all of the pattern's life.
    try:
        return pattern.matches(text)
    except InvalidRegularExpression:
        return False  # It takes too long, so the subject has no user.


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
        if match := _DEFAULT.match(rest):
            yield _Rule(None, "", "")
        elif match := _RULE.match(rest):
            pattern, replacement, case = match.groups()
            yield _Rule(_Regex(pattern), replacement, case)
        elif rest.startswith(","):
            rest = rest[1:].lstrip()
            continue
        else:
            raise InvalidConfig(
                f"{KEY} must have rules like RULE:pattern/replacement/L and DEFAULT, separated by "
                f"commas, not {rest[:200]!r}"
            )
        rest = rest[match.end() :].lstrip()


def _compiled(pattern: str) -> re.Pattern[str]:
    if _shape(pattern).is_nested:
        raise InvalidConfig(
            f"{KEY}: the pattern {pattern[:200]!r} repeats a group that contains a repetition or "
            "alternatives, which may take exponential time; write it without the outer or the "
            "inner ones"
        )
    try:
        # Java writes a named group `(?<name>...)`.
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern))
    except re.error as error:
        raise InvalidConfig(f"{KEY}: the pattern {pattern[:200]!r}: {error}") from error


class _Shape(NamedTuple):
    """What a pattern's time depends on."""

    repetitions: int
    is_nested: bool
    """Whether a repeated group contains a repetition or alternatives."""
    is_ambiguous: bool
    """Whether alternatives contain a repetition."""


@dataclass(slots=True)
class _Group:
    """What an open group contains so far; the whole pattern is the outermost one."""

    has_repetition: bool = False
    has_alternatives: bool = False
    has_inner_alternatives: bool = False
    """Whether a group within it has some."""


def _shape(pattern: str) -> _Shape:
    groups = [_Group()]
    repetitions, is_nested, is_ambiguous = 0, False, False
    for at, symbol in _symbols(pattern):
        if symbol == "(":
            groups.append(_Group())
        elif symbol == ")" and len(groups) > 1:
            group = groups.pop()
            is_repeated = _REPETITION.match(pattern, at + 1) is not None
            has_alternatives = group.has_alternatives or group.has_inner_alternatives
            is_nested |= is_repeated and (group.has_repetition or has_alternatives)
            is_ambiguous |= group.has_repetition and group.has_alternatives
            groups[-1].has_repetition |= group.has_repetition
            groups[-1].has_inner_alternatives |= has_alternatives
        elif symbol == "|":
            groups[-1].has_alternatives = True
        elif _REPETITION.match(pattern, at):
            groups[-1].has_repetition = True
            repetitions += 1
    is_ambiguous |= groups[0].has_repetition and groups[0].has_alternatives
    return _Shape(repetitions, is_nested, is_ambiguous)


def _symbols(pattern: str) -> Iterator[tuple[int, str]]:
    """Yield the characters that are neither escaped nor in brackets, with their positions."""
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
        else:
            yield at, character
        at += 1


def _expansion(replacement: str) -> Callable[[re.Match[str]], str]:
    """Return a function that makes the replacement of a match.

    As in Kafka, a reference to a group that does not exist is text.
    """

    def expand(match: re.Match[str]) -> str:
        def reference(occurrence: re.Match[str]) -> str:
            escaped, name, digits = occurrence.groups()
            if escaped is not None:
                return escaped
            if name is not None:
                return match[name] or "" if name in match.re.groupindex else occurrence[0]
            # As in Java, `$12` is group 12, or group 1 and the digit 2 if there are fewer groups.
            for length in range(len(digits), 0, -1):
                if int(digits[:length]) <= match.re.groups:
                    return (match[int(digits[:length])] or "") + digits[length:]
            return occurrence[0]

        return _REFERENCE.sub(reference, replacement)

    return expand
