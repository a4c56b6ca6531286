r"""Patterns of a subscription's ``match``: a subset of regular expressions in linear time.

An administrator writes the pattern, but any client chooses the text that is compared.  A
backtracking engine can take hours for such a pair.  So there are only alternatives of sequences:

    a  \.  .  [a-z0-9]  [^-]  \d  \w  \s     one character
    x*  x+  x?                               repeats the character before it
    left|right                               alternatives of the whole pattern

A pattern has to match the whole text.  Groups and counted repeats are refused.  The comparison
follows all positions of the pattern at once, so it takes at most characters times positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sharegroup.errors import InvalidConfig

PATTERN_CHARACTERS_MAX = 200
TEXT_CHARACTERS_MAX = 250
"""Longer texts match no pattern."""

CharacterTest = Callable[[str], bool]

_CLASSES: dict[str, CharacterTest] = {
    "d": str.isdecimal,
    "w": lambda character: character.isalnum() or character == "_",
    "s": str.isspace,
}


@dataclass(frozen=True, slots=True)
class _Element:
    """One character of a sequence, and how often it may occur."""

    accepts: CharacterTest
    may_be_absent: bool
    may_repeat: bool


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A pattern that was parsed; equal patterns have the same ``text``."""

    text: str
    _alternatives: tuple[tuple[_Element, ...], ...]

    @classmethod
    def parse(cls, text: str) -> TextPattern:
        """Parse a pattern; raise InvalidConfig if it is none of this kind."""
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise InvalidConfig(
                f"a pattern may have {PATTERN_CHARACTERS_MAX} characters, not {len(text)}"
            )
        alternatives: list[tuple[_Element, ...]] = []
        characters = _Characters(text)
        sequence: list[_Element] = []
        while (character := characters.take()) is not None:
            if character == "|":
                alternatives.append(tuple(sequence))
                sequence = []
            else:
                sequence.append(_element(characters, character))
        return cls(text, (*alternatives, tuple(sequence)))

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        return len(text) <= TEXT_CHARACTERS_MAX and any(
            _matches(elements, text) for elements in self._alternatives
        )


class _Characters:
    """The characters of a pattern, and the position of the next one."""

    __slots__ = ("_position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._position = 0

    def take(self) -> str | None:
        """Return the next character, or None at the end."""
        character = self.peek()
        self._position += 1
        return character

    def peek(self, ahead: int = 0) -> str | None:
        """Return the next character, or one further ahead, without taking it; None at the end."""
        position = self._position + ahead
        return self.text[position] if position < len(self.text) else None

    def take_inside(self, construct: str) -> str:
        """Return the next character; the pattern must not end in the middle of ``construct``."""
        character = self.take()
        if character is None:
            raise InvalidConfig(f"the pattern {self.text!r} ends within {construct}")
        return character


def _element(characters: _Characters, character: str) -> _Element:
    if character in "(){}*+?^$":
        raise InvalidConfig(
            f"the pattern {characters.text!r} contains {character!r}: groups, counts, anchors and "
            "repeats of nothing are not supported; write a backslash before the plain character"
        )
    accepts = _test(characters, character)
    quantifier = characters.peek()
    if quantifier is None or quantifier not in "*+?":
        return _Element(accepts, may_be_absent=False, may_repeat=False)
    characters.take()
    return _Element(accepts, may_be_absent=quantifier in "*?", may_repeat=quantifier in "*+")


def _test(characters: _Characters, character: str) -> CharacterTest:
    if character == ".":
        return lambda other: other != "\n"
    if character == "[":
        return _set(characters)
    if character == "\\":
        return _escaped(characters)
    return lambda other: other == character


def _escaped(characters: _Characters) -> CharacterTest:
    letter = characters.take_inside("an escape")
    if letter in _CLASSES:
        return _CLASSES[letter]
    if letter.isalnum():
        raise InvalidConfig(f"the pattern {characters.text!r}: \\{letter} is not supported")
    return lambda other: other == letter


def _set(characters: _Characters) -> CharacterTest:
    is_negated = characters.peek() == "^"
    if is_negated:
        characters.take()
    tests = tuple(_set_members(characters))
    if not tests:
        raise InvalidConfig(f"the pattern {characters.text!r} has an empty set")
    return lambda other: any(test(other) for test in tests) != is_negated


def _set_members(characters: _Characters) -> Iterator[CharacterTest]:
    while (first := characters.take_inside("a set")) != "]":
        if first == "\\":
            yield _escaped(characters)
        elif characters.peek() == "-" and characters.peek(1) != "]":
            characters.take()
            last = characters.take_inside("a range")
            yield lambda other, low=first, high=last: low <= other <= high  # type: ignore[misc]
        else:
            yield lambda other, only=first: other == only  # type: ignore[misc]


def _matches(elements: tuple[_Element, ...], text: str) -> bool:
    """Compare a sequence with a text; a position is the number of elements that are done."""
    positions = _with_absent(elements, {0})
    for character in text:
        following = set[int]()
        for position in positions:
            if position < len(elements) and elements[position].accepts(character):
                following.add(position + 1)
                if elements[position].may_repeat:
                    following.add(position)
        if not following:
            return False
        positions = _with_absent(elements, following)
    return len(elements) in positions


def _with_absent(elements: tuple[_Element, ...], positions: set[int]) -> set[int]:
    """Return the positions, and those that are reached without a character."""
    reached = set(positions)
    for position in positions:
        following = position
        while following < len(elements) and elements[following].may_be_absent:
            following += 1
            reached.add(following)
    return reached
