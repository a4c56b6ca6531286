"""Escapes text from peers for terminals and logs.

A name, an id or an error text that a peer chose may contain control characters: an escape sequence
that changes a terminal, a line feed that forges a log line, or a bidirectional override that
displays a different text.
"""

from __future__ import annotations


def escaped(text: str) -> str:
    r"""Return the text with each unprintable character replaced by its Python escape sequence.

    Unprintable are control characters (C0, DEL, C1), line and paragraph separators, format
    characters such as bidirectional overrides, lone surrogates and unassigned code points. The
    result is one line. A backslash stays as it is.

    >>> escaped("orders\x1b]0;owned\x07")
    'orders\\x1b]0;owned\\x07'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def shortened(text: str, characters_max: int) -> str:
    r"""Return the beginning of the text that has at most ``characters_max`` characters escaped.

    A shortened text ends with three dots, which are not counted.

    >>> shortened("orders", 3)
    'ord...'
    >>> shortened("\x00\x00", 7)
    '\x00...'
    """
    if len(text) <= characters_max and (text.isprintable() or len(escaped(text)) <= characters_max):
        return text
    beginning = text[:characters_max]
    room = characters_max
    for index, character in enumerate(beginning):
        room -= len(escaped(character))
        if room < 0:
            return f"{beginning[:index]}..."
    return f"{beginning}..."
