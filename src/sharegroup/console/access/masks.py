"""Masks: parts of records that nobody sees in the console, by topic.

    $.card.number       a field
    $.items[*].iban     a field of each element; [3]: of one
    $..email            a field at any depth
    $                   the whole value

A mask has to be safe rather than exact.  A value of a topic with paths that is not a JSON object or
array, is too large, or nests too deeply is masked as a whole, because its parts cannot be told
apart.  Names of headers are patterns, compared without regard to case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

MASK = "•••"
MASK_BYTES = MASK.encode()
DEPTH_MAX = 40
"""Depth of a document whose parts are masked; a deeper one is masked as a whole."""
DOCUMENT_BYTES_MAX = 256 * 1024
"""Size of a value whose parts are masked; a larger one is masked as a whole."""
PATH_CHARACTERS_MAX = 500

Header = tuple[str, bytes | None]

_SEGMENT = re.compile(
    r"(?P<deep>\.\.?)(?P<name>\w[\w-]*|\*)|\[(?:(?P<index>\d{1,9}|\*)|'(?P<one>[^']*)'|\"(?P<two>[^\"]*)\")\]"
)


class BadPath(ValueError):
    """A text is not a path that masks have."""


class Segment(NamedTuple):
    """A step of a path; ``key`` is a field, an index, or None for each of them."""

    key: str | int | None
    is_deep: bool = False
    """Whether any number of levels may be before it."""

    def takes(self, key: str | int) -> bool:
        """Whether it leads to this field or index."""
        return self.key is None or self.key == key


Path = tuple[Segment, ...]


def parsed_path(text: str) -> Path:
    """Return the steps of a path; raise `BadPath` with the place that is wrong."""
    if not text.startswith("$"):
        raise BadPath(f"{text[:100]!r}: expected a path that begins with $, as $.card.number")
    if len(text) > PATH_CHARACTERS_MAX:
        raise BadPath(f"{text[:100]!r}...: expected at most {PATH_CHARACTERS_MAX} characters")
    segments: list[Segment] = []
    at = 1
    while at < len(text):
        match = _SEGMENT.match(text, at)
        if match is None:
            raise BadPath(
                f"{text!r}: {text[at : at + 20]!r} is no step; expected .name, ..name, ['name'], "
                "[*] or [0]"
            )
        segments.append(_segment(match))
        at = match.end()
    return tuple(segments)


def _segment(match: re.Match[str]) -> Segment:
    if (index := match["index"]) is not None:
        return Segment(None if index == "*" else int(index))
    name = match["name"]
    if name is not None:
        return Segment(None if name == "*" else name, match["deep"] == "..")
    return Segment(match["one"] if match["one"] is not None else match["two"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """What is masked in the records of some topics."""

    topics: tuple[str, ...]
    values: tuple[Path, ...] = ()
    headers: tuple[str, ...] = ()
    keys: bool = False


@dataclass(frozen=True, slots=True)
class Masks:
    """All masks of a console."""

    masks: tuple[Mask, ...] = ()

    @property
    def hide_content(self) -> bool:
        """Whether keys or values of any topic are masked."""
        return any(mask.keys or mask.values for mask in self.masks)

    def of(self, *topics: str) -> TopicMask:
        """Return what is masked of a record that is, or was, in one of these topics."""
        if not self.masks:
            return NO_TOPIC_MASK
        found = [
            mask
            for mask in self.masks
            if any(fnmatchcase(topic, pattern) for topic in topics for pattern in mask.topics)
        ]
        return TopicMask(
            frozenset(path for mask in found for path in mask.values),
            tuple(pattern.casefold() for mask in found for pattern in mask.headers),
            any(mask.keys for mask in found),
        )


@dataclass(frozen=True, slots=True)
class TopicMask:
    """What is masked of the records of one topic."""

    paths: frozenset[Path] = field(default_factory=frozenset)
    headers: tuple[str, ...] = ()
    keys: bool = False

    def document(self, document: Any) -> Any:
        """Return a JSON document with its masked parts replaced."""
        if not self.paths:
            return document
        if not isinstance(document, (dict, list)):
            return MASK
        return _masked(document, self.paths, DEPTH_MAX)

    def value(self, content: bytes | None) -> bytes | None:
        """Return a value with its masked parts replaced."""
        if not self.paths or not content:
            return content
        if len(content) > DOCUMENT_BYTES_MAX:
            return MASK_BYTES
        try:
            masked = self.document(json.loads(content))
        except (ValueError, RecursionError):
            return MASK_BYTES
        if masked == MASK:
            return MASK_BYTES
        return json.dumps(masked, ensure_ascii=False).encode("utf-8", "backslashreplace")

    def key(self, content: bytes | None) -> bytes | None:
        """Return a key, or the mask."""
        return MASK_BYTES if self.keys and content else content

    def shown_headers(self, headers: Sequence[Header]) -> list[Header]:
        """Return headers with the contents of the masked ones replaced."""
        return [(name, self.header(name, content)) for name, content in headers]

    def header(self, name: str, content: bytes | None) -> bytes | None:
        """Return the content of a header, or the mask."""
        if content is None or not self.headers:
            return content
        folded = name.casefold()
        return (
            MASK_BYTES if any(fnmatchcase(folded, pattern) for pattern in self.headers) else content
        )


def _masked(value: Any, paths: Iterable[Path], depth: int) -> Any:
    """Return a part of a document; the paths are those that begin at this part."""
    if any(not path for path in paths):
        return MASK
    if isinstance(value, dict):
        return {
            key: _masked(inner, below, depth - 1) if (below := _below(key, paths, depth)) else inner
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [
            _masked(inner, below, depth - 1) if (below := _below(index, paths, depth)) else inner
            for index, inner in enumerate(value)
        ]
    return value


def _below(key: str | int, paths: Iterable[Path], depth: int) -> frozenset[Path]:
    """Return the paths that begin at the part with this key."""
    if depth == 0:
        return frozenset({()})
    below = set()
    for path in paths:
        if path[0].is_deep:
            below.add(path)
        if path[0].takes(key):
            below.add(path[1:])
    return frozenset(below)


NO_TOPIC_MASK = TopicMask()
NO_MASKS = Masks()
