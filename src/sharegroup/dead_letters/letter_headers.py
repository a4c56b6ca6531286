"""The headers of a dead letter: their names, and where they are among those of its record.

    trace  source │ __sharegroup.origin.topic ... __sharegroup.dead.reason ... __dlq.errors.topic
    application's │ the letter's

Which headers are the letter's follows from the names alone, and nearly all letters of a topic have
the same names.  So that is found out once for each list of names (`LetterLayout`).

If the record of a letter is itself a letter, header names occur twice.  The last occurrence counts,
and a redrive removes only that one, because the others belong to the application.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from sharegroup.client.records import Header
from sharegroup.dead_letters.story_headers import (
    ATTEMPTS,
    ORIGIN,
    PREFIX,
    REDRIVE_ID,
    REDRIVES,
    STORY,
    TRACE,
)
from sharegroup.wire.batches.header_names import REPLACEMENT
from sharegroup.wire.batches.record_contents import encoded_names
from sharegroup.wire.internal_topics.dead_letter_headers import KAFKA_PREFIX, NOT_COPIED

DEAD = "__sharegroup.dead."

DEAD_NAMES = (
    "id", "reason", "error.class", "error.message", "error.traceback", "last.offset",
    "batch.offset", "batch.bytes", "handler", "group", "member", "first.failure", "last.failure",
)  # fmt: skip
KAFKA_NAMES = ("topic", "partition", "offset", "group", "delivery.count", "message")

DEAD_REASON = DEAD + "reason"
DEAD_GROUP = DEAD + "group"
DEAD_ID = DEAD + "id"
BATCH_BYTES = DEAD + "batch.bytes"
KAFKA_GROUP = KAFKA_PREFIX + "group"
KAFKA_TOPIC = KAFKA_PREFIX + "topic"

TOLD = STORY.union(
    (DEAD + name for name in DEAD_NAMES),
    (KAFKA_PREFIX + name for name in KAFKA_NAMES),
    (NOT_COPIED,),
)
"""All header names that a letter adds to those of its record."""

HANDED_ON = (*ORIGIN, ATTEMPTS, TRACE)
"""Headers of a worker's story that a copy keeps."""

ADDED = (REDRIVES, REDRIVE_ID)
"""Headers that a copy has in addition."""

_NAME = itemgetter(0)

KEPT_HEADERS_MAX = 100
KEPT_NAME_CHARACTERS_MAX = 10_000
"""A longer list of names is a producer's whim, so its layout is not kept."""
KEPT_LAYOUTS_MAX = 100
"""Lists of names differ by the headers of the applications, of which a topic may have many."""


class LetterLayout:
    """The positions of a letter's own headers, by name, and those of its application."""

    __slots__ = ("_encoded", "copied", "has_origin", "names", "own", "own_end", "places")

    def __init__(self, names: list[str]) -> None:
        self.names = names
        """The names of all headers, in order."""
        self.own_end: int | None = None
        """The application's headers end here, and the letter's follow; None: they are mixed."""
        places = _places_behind(names)
        if places is None:
            places, own = _sorted(names)
        else:
            own = tuple(range(len(names) - len(places)))
            self.own_end = len(own)
        self.places = places
        self.own = own
        """The positions of the application's headers."""
        self.has_origin = places.keys() >= set(ORIGIN)
        self.copied = (*own, *(places[name] for name in HANDED_ON if name in places))
        """The positions of what a copy of a worker's letter keeps."""
        self._encoded: tuple[bytes, ...] | None = None

    def own_of(self, headers: Sequence[Header]) -> tuple[Header, ...]:
        """The application's headers among these, which have the names of this layout."""
        if self.own_end is not None:
            return tuple(headers[: self.own_end])
        return tuple(headers[place] for place in self.own)

    def names_of_copy(self, headers: Sequence[Header]) -> Sequence[bytes]:
        """The encoded names of what a copy keeps of these headers, and of those it adds."""
        encoded = self._encoded
        if encoded is None:
            encoded = encoded_names([*(headers[place][0] for place in self.copied), *ADDED])
            # Names that are not UTF-8 may look alike, so those of the next letter may be others.
            if not any(REPLACEMENT in self.names[place] for place in self.copied):
                self._encoded = encoded
        return encoded


class LetterLayouts:
    """The layouts of the letters that were read before, as many as `KEPT_LAYOUTS_MAX`."""

    __slots__ = ("_by_names", "_last")

    def __init__(self) -> None:
        self._by_names: dict[tuple[str, ...], LetterLayout] = {}
        self._last = LetterLayout([])

    def __len__(self) -> int:
        return len(self._by_names)

    def of(self, headers: Sequence[Header]) -> LetterLayout:
        """The layout of a letter with these headers."""
        # Hot path of a redrive.  Consecutive letters mostly have equal names, and lists are
        # compared without the hashes of new strings.
        names = list(map(_NAME, headers))
        last = self._last
        if names == last.names:
            return last
        key = tuple(names)
        layout = self._by_names.get(key)
        if layout is None:
            layout = LetterLayout(names)
            if len(names) > KEPT_HEADERS_MAX or sum(map(len, names)) > KEPT_NAME_CHARACTERS_MAX:
                return layout
            if len(self._by_names) >= KEPT_LAYOUTS_MAX:
                self._by_names.clear()
            self._by_names[key] = layout
        self._last = layout
        return layout


def _places_behind(names: Sequence[str]) -> dict[str, int] | None:
    """The positions of the letter's headers behind the application's; None if they are mixed."""
    first = next((place for place, name in enumerate(names) if name in TOLD), None)
    if first is None:
        return None
    places = {name: place for place, name in enumerate(names) if place >= first}
    # Fewer names than headers: the record is itself a letter, and `_sorted` tells them apart.
    is_behind = len(places) == len(names) - first and places.keys() <= TOLD
    return places if is_behind else None


def _sorted(names: Sequence[str]) -> tuple[dict[str, int], tuple[int, ...]]:
    """Split positions into those of the letter's headers, by name, and of the application's."""
    places: dict[str, int] = {}
    own: list[int] = []
    # From the end, because of a name that occurs twice only the last one is the letter's own.
    for place in range(len(names) - 1, -1, -1):
        name = names[place]
        if name.startswith(PREFIX):
            places.setdefault(name, place)
        elif (name.startswith(KAFKA_PREFIX) or name == NOT_COPIED) and name not in places:
            places[name] = place
        else:
            own.append(place)
    own.reverse()
    return places, tuple(own)
