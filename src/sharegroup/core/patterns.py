"""Regular expressions that cannot take long, whatever pattern and text a client sends.

A consumer may subscribe to a pattern that the broker matches with topic names (KIP-848), and
requests of administrators have patterns, too. Kafka uses RE2, whose time grows only linearly with
the text. The Python binding of RE2 has no wheels for some platforms, and Python's own ``re`` may
take hours for a short pattern. So the part of RE2's syntax that names need is implemented here, as
an automaton without backtracking:

    literals, . [a-z] [^...] [[:alpha:]] \\d \\w \\s \\D \\W \\S \\Q...\\E, escaped characters
    groups (...) (?:...) (?P<name>...) (?<name>...)
    flags (?i) (?s), at the beginning or in a group
    | * + ? {n} {n,} {n,m}, the same with a final ? (lazy, which changes nothing here)
    ^ $ \\A \\z

A pattern matches a text as a whole. Everything else is refused with an error that names the place,
also what RE2 has and a name cannot need: ``\\b``, ``\\p{...}``, ``\\x..``.

The automaton is a list of nodes. Matching keeps the set of nodes that the text so far may lead to,
so it takes at most as many steps as the text has characters times the nodes.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sharegroup.errors import InvalidRegularExpression
from sharegroup.steps import STEP_MASK, Steps

PATTERN_CHARACTERS_MAX = 1_000
"""Number of characters of a pattern."""

NODES_MAX = 1_000
"""Number of nodes of an automaton; a repetition {n} has n copies of its operand."""

REPEAT_MAX = 1_000
"""Largest number in a repetition; RE2's limit."""

DEPTH_MAX = 50
"""Depth of nested groups."""

STEPS_FREE = 200_000
STEPS_PER_TEXT_MAX = 2_000
"""Steps of a pattern's automaton that are allowed: so many, and so many more for each text."""

STEPS_PER_SLICE = 5_000
"""Steps of automata after which other requests get their turn, about a millisecond."""

CACHED_MAX = 4_000
"""Number of remembered steps of an automaton."""

RANGE_CHARACTERS_MAX = 4_096
"""Number of characters of a range in brackets."""


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """A set of characters, or with ``is_negated`` all others."""

    characters: frozenset[str]
    is_negated: bool = False

    def __contains__(self, character: object) -> bool:
        return (character in self.characters) is not self.is_negated

    @property
    def negated(self) -> CharacterSet:
        """All other characters."""
        return CharacterSet(self.characters, not self.is_negated)

    def joined(self, other: CharacterSet) -> CharacterSet:
        """Return the characters that are in one of the two sets."""
        if self.is_negated and other.is_negated:
            return CharacterSet(self.characters & other.characters, is_negated=True)
        if self.is_negated:
            return CharacterSet(self.characters - other.characters, is_negated=True)
        if other.is_negated:
            return CharacterSet(other.characters - self.characters, is_negated=True)
        return CharacterSet(self.characters | other.characters)


def _of(characters: Iterable[str]) -> CharacterSet:
    return CharacterSet(frozenset(characters))


_DIGITS = frozenset(string.digits)
_LETTERS = frozenset(string.ascii_letters)
_WORD = _of({*_DIGITS, *_LETTERS, "_"})
_SPACE = _of(" \t\n\f\r")
_ANY = _of(()).negated
_ANY_BUT_BREAK = _of("\n").negated
_CLASSES = {
    "d": _of(_DIGITS),
    "D": _of(_DIGITS).negated,
    "w": _WORD,
    "W": _WORD.negated,
    "s": _SPACE,
    "S": _SPACE.negated,
}
_GRAPH = frozenset(map(chr, range(0x21, 0x7F)))
_NAMED_CLASSES = {
    "alnum": _of(_DIGITS | _LETTERS),
    "alpha": _of(_LETTERS),
    "ascii": _of(map(chr, range(0x80))),
    "digit": _of(_DIGITS),
    "graph": _of(_GRAPH),
    "lower": _of(string.ascii_lowercase),
    "print": _of(_GRAPH | {" "}),
    "punct": _of(string.punctuation),
    "space": _of(string.whitespace),
    "upper": _of(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": _of(string.hexdigits),
}
_PLAIN_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(slots=True)
class _Node:
    """A node: a step over one of ``characters``, or free steps to ``targets``.

    A free step may hold only at the beginning or the end of the text.
    """

    targets: list[int] = field(default_factory=list)
    characters: CharacterSet | None = None
    at_start: bool = False
    at_end: bool = False


class Pattern:
    """A compiled pattern. A set of nodes is an integer with a bit for each node."""

    __slots__ = (
        "_cache",
        "_closures",
        "_first",
        "_last",
        "_nodes",
        "pattern",
        "steps_max",
        "steps_taken",
    )

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.steps_taken = 0
        """Steps over single nodes so far, as a measure of the time that was spent."""
        self.steps_max = STEPS_FREE
        """Steps after which a match fails; see `matching`."""
        self._nodes, first, last = _Parser(pattern).parse()
        self._last = 1 << last
        self._closures: dict[int, int] = {}
        self._first = self._closure(1 << first, at_start=True)
        self._cache: dict[tuple[int, str], int] = {}

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        reached = self._first
        for character in text:
            key = (reached, character)
            following = self._cache.get(key)
            if following is None:
                following = self._step(*key)
                if self.steps_taken > self.steps_max:
                    raise InvalidRegularExpression(
                        f"regular expression {self.pattern[:200]!r} takes too long to match; use "
                        "a simpler one"
                    )
                if len(self._cache) >= CACHED_MAX:
                    self._cache.clear()
                self._cache[key] = following
            reached = following
            if not reached:
                return False
        # The end of an empty text is its beginning, too.
        return bool(self._last & self._closure(reached, at_start=not text, at_end=True))

    def _step(self, reached: int, character: str) -> int:
        following = 0
        for index in _bits(reached):
            self.steps_taken += 1
            node = self._nodes[index]
            if node.characters is not None and character in node.characters:
                target = node.targets[0]
                closure = self._closures.get(target)
                if closure is None:
                    closure = self._closures[target] = self._closure(1 << target)
                following |= closure
        return following

    def _closure(self, reached: int, *, at_start: bool = False, at_end: bool = False) -> int:
        """Return all nodes that free steps lead to."""
        waiting = list(_bits(reached))
        while waiting:
            self.steps_taken += 1
            node = self._nodes[waiting.pop()]
            if (
                node.characters is not None
                or (node.at_start and not at_start)
                or (node.at_end and not at_end)
            ):
                continue
            for target in node.targets:
                if not reached >> target & 1:
                    reached |= 1 << target
                    waiting.append(target)
        return reached


def matching(pattern: str, texts: Sequence[str]) -> Steps[frozenset[str]]:
    """Return the texts that match a pattern, in steps; raise InvalidRegularExpression.

    A pattern that takes much more time than patterns should is refused.
    """
    compiled = Pattern(pattern)
    compiled.steps_max = STEPS_FREE + STEPS_PER_TEXT_MAX * len(texts)
    matches: list[str] = []
    pause_at = STEPS_PER_SLICE
    for index, text in enumerate(texts):
        if compiled.matches(text):
            matches.append(text)
        if index & STEP_MASK == STEP_MASK or compiled.steps_taken > pause_at:
            pause_at = compiled.steps_taken + STEPS_PER_SLICE
            yield
    return frozenset(matches)


def _bits(number: int) -> Iterator[int]:
    """Yield the positions of the bits that are 1."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def _unquoted(pattern: str) -> str:
    """Return the pattern with escaped characters in place of ``\\Q...\\E``."""
    parts: list[str] = []
    position = 0
    while (start := pattern.find("\\", position)) >= 0:
        parts.append(pattern[position:start])
        if pattern[start + 1 : start + 2] != "Q":
            parts.append(pattern[start : start + 2])
            position = start + 2
            continue
        end = pattern.find("\\E", start + 2)
        quoted = pattern[start + 2 :] if end < 0 else pattern[start + 2 : end]
        parts += (character if character.isalnum() else f"\\{character}" for character in quoted)
        position = len(pattern) if end < 0 else end + 2
    return "".join(parts) + pattern[position:]


Fragment = tuple[int, int]
"""The first and the last node of a part of the automaton; the last one has no steps yet."""


class _Parser:
    """Builds the automaton of a pattern by recursive descent."""

    __slots__ = ("_depth", "_flags", "_nodes", "_pattern", "_position")

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise InvalidRegularExpression(
                f"a regular expression has at most {PATTERN_CHARACTERS_MAX} characters, not "
                f"{len(pattern)}"
            )
        self._pattern = _unquoted(pattern)
        self._position = 0
        self._depth = 0
        self._flags = frozenset[str]()
        """The flags i and s that hold at the position."""
        self._nodes: list[_Node] = []

    def parse(self) -> tuple[list[_Node], int, int]:
        """Return the nodes, the first one and the last one."""
        first, last = self._alternatives()
        if self._position < len(self._pattern):
            raise self._error("there is no group that this ) ends")
        return self._nodes, first, last

    def _alternatives(self) -> Fragment:
        outside = self._flags
        first, last = self._node(), self._node()
        while True:
            begin, end = self._sequence()
            self._nodes[first].targets.append(begin)
            self._nodes[end].targets.append(last)
            if not self._take("|"):
                # A flag holds up to the end of its group, in later alternatives, too.
                self._flags = outside
                return first, last

    def _sequence(self) -> Fragment:
        first = last = self._node()
        while self._position < len(self._pattern) and self._pattern[self._position] not in "|)":
            begin, end = self._repeated()
            self._nodes[last].targets.append(begin)
            last = end
        return first, last

    def _repeated(self) -> Fragment:
        start = self._position
        fragment = self._atom()
        end = self._position
        repeats = 0
        while (bounds := self._bounds()) is not None:
            self._take("?")
            repeats += 1
            if repeats > 1:
                raise self._error("a repetition is repeated")
            fragment = self._repeat(fragment, start, end, bounds)
        return fragment

    def _repeat(
        self, fragment: Fragment, start: int, end: int, bounds: tuple[int, int | None]
    ) -> Fragment:
        """Return the operand from ``start`` to ``end`` repeated; ``fragment`` is its first copy."""
        least, most = bounds
        first = last = self._node()
        resume, flags = self._position, self._flags
        copies = max(least, 1) if most is None else most
        for number in range(copies):
            if number:
                # Parsed anew, because each copy needs nodes of its own.
                self._position = start
                fragment = self._atom()
                assert self._position == end, "a copy ends where the operand ends"
            begin, copy_end = fragment
            self._nodes[last].targets.append(begin)
            following = self._node()
            self._nodes[copy_end].targets.append(following)
            # This copy and all that follow may be left out.
            if number >= least:
                self._nodes[last].targets.append(following)
            # Without an upper bound the last copy may be gone through again and again.
            if most is None and number == copies - 1:
                self._nodes[copy_end].targets.append(begin)
            last = following
        self._position, self._flags = resume, flags
        return first, last

    def _bounds(self) -> tuple[int, int | None] | None:
        """Take a repetition and return its bounds; return None if there is none."""
        for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(symbol):
                return bounds
        if self._peek() != "{":
            return None
        closing = self._pattern.find("}", self._position)
        low, comma, high = self._pattern[self._position + 1 : max(closing, 0)].partition(",")
        texts = (low, high) if comma and high else (low,)
        if closing < 0 or not all(text.isascii() and text.isdigit() for text in texts):
            return None  # As in RE2, { is a plain character here.
        least = self._number(low)
        most = least if not comma else self._number(high) if high else None
        if most is not None and most < least:
            raise self._error(f"the repetition has at least {least} and at most {most}")
        self._position = closing + 1
        return least, most

    def _number(self, text: str) -> int:
        if len(text) > len(str(REPEAT_MAX)) or int(text) > REPEAT_MAX:
            raise self._error(f"a repetition is larger than {REPEAT_MAX}")
        return int(text)

    def _atom(self) -> Fragment:
        character = self._pattern[self._position]
        self._position += 1
        match character:
            case "(":
                return self._group()
            case "[":
                return self._over(self._character_class())
            case ".":
                return self._over(_ANY if "s" in self._flags else _ANY_BUT_BREAK)
            case "^":
                return self._edge(at_start=True)
            case "$":
                return self._edge(at_end=True)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                self._position -= 1
                raise self._error("there is nothing to repeat")
            case _:
                return self._over(_of(character))

    def _group(self) -> Fragment:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(f"groups are nested more than {DEPTH_MAX} deep")
        outside = self._flags
        if self._take("?"):
            flags_alone = self._group_head()
            if flags_alone:
                self._depth -= 1
                node = self._node()
                return node, node
        fragment = self._alternatives()
        if not self._take(")"):
            raise self._error("a ) is missing")
        self._flags = outside
        self._depth -= 1
        return fragment

    def _group_head(self) -> bool:
        """Take what follows ``(?``; return whether it is the whole group, as in ``(?i)``."""
        for opening in ("P<", "<"):
            if self._pattern.startswith(opening, self._position):
                closing = self._pattern.find(">", self._position)
                name = self._pattern[self._position + len(opening) : closing]
                if closing < 0 or not name.isidentifier() or not name.isascii():
                    break  # Also a look-behind, which RE2 does not have either.
                self._position = closing + 1
                return False
        flags, sign = "", True
        # m and U have no effect here. Greed (U) does not matter for a match of the whole text; m
        # matters only between the lines of a text, and names are not written over several.
        while (flag := self._peek()) and flag in "imsU-":
            self._position += 1
            flags += flag
            if flag == "-":
                sign = False
            elif flag in "is":
                self._flags = self._flags | {flag} if sign else self._flags - {flag}
        if self._take(":"):
            return False
        if flags and self._take(")"):
            return True
        raise self._error("this kind of group is not supported")

    def _escape(self) -> Fragment:
        if self._position == len(self._pattern):
            raise self._error("the pattern ends with a \\")
        character = self._pattern[self._position]
        if character in "Az":
            self._position += 1
            return self._edge(at_start=character == "A", at_end=character == "z")
        return self._over(self._escaped())

    def _escaped(self) -> CharacterSet:
        """Take the character after a backslash and return the characters that it stands for."""
        character = self._pattern[self._position]
        if character in _CLASSES:
            self._position += 1
            return _CLASSES[character]
        if character.isalnum() and character not in _PLAIN_ESCAPES:
            raise self._error(f"\\{character} is not supported")
        self._position += 1
        return _of(_PLAIN_ESCAPES.get(character, character))

    def _character_class(self) -> CharacterSet:
        is_negated = self._take("^")
        characters = _of(())
        is_first = True
        # A ] that comes first is a character of the set, as in RE2.
        while is_first or self._peek() != "]":
            is_first = False
            if not self._peek():
                raise self._error("a ] is missing")
            characters = characters.joined(self._class_part())
        self._position += 1
        cased = self._with_case(characters)
        return cased.negated if is_negated else cased

    def _class_part(self) -> CharacterSet:
        """Take one character, range, escape or named class inside brackets."""
        if self._pattern.startswith("[:", self._position):
            return self._named_class()
        low = self._class_character()
        if self._peek() != "-" or self._pattern[self._position + 1 : self._position + 2] in (
            "]",
            "",
        ):
            return low
        self._position += 1
        high = self._class_character()
        return _of(map(chr, self._range(low, high)))

    def _range(self, low: CharacterSet, high: CharacterSet) -> range:
        ends = []
        for end in (low, high):
            if len(end.characters) != 1 or end.is_negated:
                raise self._error("the range is not valid")
            ends.append(ord(next(iter(end.characters))))
        if not 0 <= ends[1] - ends[0] < RANGE_CHARACTERS_MAX:
            raise self._error("the range is not valid")
        return range(ends[0], ends[1] + 1)

    def _class_character(self) -> CharacterSet:
        character = self._peek()
        if not character:
            raise self._error("a ] is missing")
        self._position += 1
        if character != "\\":
            return _of(character)
        if not self._peek():
            raise self._error("the pattern ends with a \\")
        return self._escaped()

    def _named_class(self) -> CharacterSet:
        closing = self._pattern.find(":]", self._position)
        name = self._pattern[self._position + 2 : max(closing, 0)]
        characters = _NAMED_CLASSES.get(name.removeprefix("^"))
        if characters is None:
            raise self._error("there is no such named class")
        self._position = closing + 2
        return characters.negated if name.startswith("^") else characters

    # The nodes

    def _node(self) -> int:
        if len(self._nodes) >= NODES_MAX:
            raise self._error(f"the pattern is too large: it needs more than {NODES_MAX} nodes")
        self._nodes.append(_Node())
        return len(self._nodes) - 1

    def _over(self, characters: CharacterSet) -> Fragment:
        """Return a step over one of these characters."""
        first, last = self._node(), self._node()
        self._nodes[first].characters = self._with_case(characters)
        self._nodes[first].targets.append(last)
        return first, last

    def _edge(self, *, at_start: bool = False, at_end: bool = False) -> Fragment:
        first, last = self._node(), self._node()
        self._nodes[first].at_start, self._nodes[first].at_end = at_start, at_end
        self._nodes[first].targets.append(last)
        return first, last

    def _with_case(self, characters: CharacterSet) -> CharacterSet:
        if "i" not in self._flags:
            return characters
        cased = (
            variant
            for character in characters.characters
            for variant in (character, character.lower(), character.upper())
        )
        return CharacterSet(frozenset(cased), characters.is_negated)

    # The text

    def _peek(self) -> str:
        return self._pattern[self._position : self._position + 1]

    def _take(self, symbol: str) -> bool:
        if self._peek() != symbol:
            return False
        self._position += 1
        return True

    def _error(self, problem: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(
            f"regular expression {self._pattern[:200]!r}, character {self._position}: {problem}; "
            "the supported syntax is in docs/consumer-groups.md"
        )
