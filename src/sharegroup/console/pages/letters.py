"""Dead letters: the topics, what is in one of them by reason, and one letter with its history."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import NotThere, Page, Visit
from sharegroup.console.pages.tables import Column, table
from sharegroup.console.parameters import BadQuery
from sharegroup.console.records.contents import Contents, ShownLetter
from sharegroup.console.records.moments import moment_ms
from sharegroup.console.records.preview import preview
from sharegroup.console.records.turns import Turns
from sharegroup.dead_letters.expression import Expression, ExpressionError
from sharegroup.dead_letters.letter import Death, Letter
from sharegroup.dead_letters.letter_topics import LetterTopic
from sharegroup.dead_letters.queue import (
    KINDS_MAX,
    OTHERS,
    Chunk,
    DeadLetterQueue,
    LetterKind,
)
from sharegroup.dead_letters.reasons import REASONS
from sharegroup.dead_letters.selection import Selection

LOOK_SECONDS = 5.0
"""Time for reading the letters of a page."""
LETTERS_SHOWN_MAX = 200
"""The newest letters, which the page lists."""
CONDITIONS = ("error_class", "reason", "group", "handler", "since", "until", "key", "where")
"""The names of the conditions in addresses and forms, those of `sharegroup dlq`."""
TEXT_CHARACTERS_MAX = 1_000

TOPICS = (
    Column("name", "Topic", "id", link=lambda row: address("letters", topic=row["name"])),
    Column("letters", "Letters", "number"),
    Column("last_hour", "Last hour", "number"),
    Column("last_ms", "Newest", "time", narrow=False),
    Column("groups", "Groups", "list", narrow=False),
)
KINDS = (
    Column("letters", "Letters", "number"),
    Column("reason", "Reason", "text"),
    Column("error_class", "Error", "id", narrow=False),
    Column("handler", "Handler", "text", narrow=False),
    Column("group", "Group", "id", narrow=False),
    Column("last_ms", "Newest", "time", narrow=False),
    Column("message", "Last message", "long", link=lambda row: row["address"]),
)
LETTERS = (
    Column("at_ms", "Written", "time"),
    Column("place", "Letter", "id", link=lambda row: row["address"]),
    Column("reason", "Reason", "text", narrow=False),
    Column("error_class", "Error", "id", narrow=False),
    Column("message", "Message", "long"),
    Column("value", "Value", "content", narrow=False),
    Column("sent_back", "Sent back", "text", narrow=False),
)


async def letters(visit: Visit) -> Page:
    """Return the topics of dead letters, or the letters of one topic that meet conditions."""
    if not visit.query.get("topic", ""):
        return _topics(visit)
    contents, selection = asked(visit)
    topic = contents.topic
    looked = await _look(visit, contents, selection)
    kept = {name: visit.query[name] for name in CONDITIONS if visit.query.get(name)}
    kinds = [_kind_row(topic, kept, kind, deaths) for kind, deaths in looked.kinds.items()]
    rows = [_letter_row(contents, letter, is_redriven) for letter, is_redriven in looked.newest()]
    context = {
        "topic": topic,
        "form": {name: visit.query.get(name, "") for name in CONDITIONS},
        "reasons": list(map(str, REASONS)),
        "looked": looked,
        "registry_problem": contents.registry_problem,
        "kinds": table("kinds", KINDS, kinds, visit.query, sort="-letters", empty="No letter."),
        "letters": table("letters", LETTERS, rows, visit.query, sort="-at_ms", empty="No letter."),
        "is_everything": selection.is_everything,
        "query": {"topic": topic, **kept},
    }
    plain = [{**row, "value": row["value"].text} for row in rows]
    data = {"topic": topic, "kinds": kinds, "letters": plain, "is_complete": looked.is_complete}
    return Page("letters.html", topic, context, data)


def asked(visit: Visit) -> tuple[Contents, Selection]:
    """Return the selection that the address describes, and what the user may see of its topic."""
    topic, selection = visit.topic(), selection_of(visit.query)
    contents = visit.contents(topic)
    if not contents.is_shown and (selection.where or selection.key):
        raise BadQuery("you may not see the values of this topic, so you cannot search them")
    return contents, selection


def _topics(visit: Visit) -> Page:
    rows = [_topic_row(topic) for topic in visit.watcher.view.letters.values()]
    empty = "There are no dead-letter topics: no group keeps letters, or nothing has failed."
    shown = table("topics", TOPICS, rows, visit.query, sort="-letters", empty=empty)
    return Page("list.html", "Dead letters", {"shown": shown}, {"topics": rows})


def _topic_row(topic: LetterTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partition_count": topic.partition_count,
        "letters": topic.letters,
        "last_hour": topic.recent_letters,
        "last_ms": topic.last_letter_ms,
        "groups": topic.groups,
    }


def selection_of(query: Mapping[str, str]) -> Selection:
    """Return the selection of letters that an address or a form describes; BadQuery if invalid."""
    texts = {name: query.get(name, "") for name in CONDITIONS}
    for name, text in texts.items():
        if len(text) > TEXT_CHARACTERS_MAX:
            raise BadQuery(f"{name}: expected at most {TEXT_CHARACTERS_MAX} characters")
    if texts["reason"] and texts["reason"] not in set(map(str, REASONS)):
        raise BadQuery(f"reason: expected one of {', '.join(map(str, REASONS))}")
    try:
        where = Expression(texts["where"]) if texts["where"].strip() else None
    except ExpressionError as error:
        raise BadQuery(f"where: {error}") from error
    return Selection(
        error_class=texts["error_class"] or None,
        reason=texts["reason"] or None,
        group=texts["group"] or None,
        handler=texts["handler"] or None,
        since_ms=moment_ms("since", texts["since"]),
        until_ms=moment_ms("until", texts["until"]),
        key=texts["key"].encode("utf-8", "surrogatepass") or None,
        where=where,
    )


@dataclass(slots=True)
class Deaths:
    """The letters of one kind."""

    letters: int = 0
    last_ms: int = -1
    message: str = ""


@dataclass(slots=True)
class Looked:
    """What was found in a topic within the time."""

    count: int = 0
    is_complete: bool = True
    kinds: dict[LetterKind, Deaths] = field(default_factory=dict)
    heap: list[tuple[int, int, int, Letter, bool]] = field(default_factory=list)

    def add(self, letter: Letter, death: Death, *, is_redriven: bool) -> None:
        """Count a letter, and keep it if it is among the newest; ``death`` is what is shown."""
        self.count += 1
        kind = LetterKind(death.group, death.handler, str(death.reason), death.error_class)
        if kind not in self.kinds and len(self.kinds) >= KINDS_MAX:
            kind = OTHERS
        deaths = self.kinds.setdefault(kind, Deaths())
        deaths.letters += 1
        if letter.timestamp_ms >= deaths.last_ms:
            deaths.last_ms = letter.timestamp_ms
            deaths.message = death.error_message or death.message
        entry = (letter.timestamp_ms, letter.partition, letter.offset, letter, is_redriven)
        if len(self.heap) < LETTERS_SHOWN_MAX:
            heapq.heappush(self.heap, entry)
        else:
            heapq.heappushpop(self.heap, entry)

    def newest(self) -> list[tuple[Letter, bool]]:
        """Return the newest letters, and whether each was sent back before."""
        return [(letter, is_redriven) for _, _, _, letter, is_redriven in sorted(
            self.heap, key=lambda entry: entry[:3], reverse=True)]  # fmt: skip


async def _look(visit: Visit, contents: Contents, selection: Selection) -> Looked:
    """Read the letters of a topic until the time is over."""
    looked = Looked()
    end_at, turns = time.monotonic() + LOOK_SECONDS, Turns()
    async with DeadLetterQueue(contents.topic, **visit.options) as queue:
        async for chunk in queue.chunks(
            selection, complete=needs_records(selection), unreadable=lambda _, __: None
        ):
            await contents.prepare(letter.value for letter in chunk.letters)
            for letter, shown, is_redriven in shown_letters(contents, selection, chunk):
                looked.add(letter, shown.death, is_redriven=is_redriven)
                await turns.give()
                if time.monotonic() >= end_at:
                    looked.is_complete = False
                    return looked
    return looked


def needs_records(selection: Selection) -> bool:
    """Whether letters are selected by the content of their records."""
    return selection.where is not None or selection.key is not None


def shown_letters(
    contents: Contents, selection: Selection, chunk: Chunk[Letter]
) -> Iterator[tuple[Letter, ShownLetter, bool]]:
    """Yield letters with what is shown of them, and whether each was sent back before."""
    for letter in chunk.letters:
        shown = contents.letter(letter)
        # A match would tell what is masked.
        if shown.is_whole or not needs_records(selection):
            yield letter, shown, letter.offset in chunk.redriven


def _kind_row(
    topic: str, kept: Mapping[str, str], kind: LetterKind, deaths: Deaths
) -> dict[str, Any]:
    own = {
        "reason": kind.reason, "error_class": kind.error_class, "handler": kind.handler,
        "group": kind.group,
    }  # fmt: skip
    conditions = {**kept, **{name: text for name, text in own.items() if text}}
    return {
        **own,
        "letters": deaths.letters,
        "last_ms": deaths.last_ms,
        "message": deaths.message[:TEXT_CHARACTERS_MAX] or "(none)",
        "address": address("letters", topic=topic, **conditions),
    }


def _letter_row(contents: Contents, letter: Letter, is_redriven: bool) -> dict[str, Any]:
    shown = contents.letter(letter)
    death = shown.death
    return {
        "at_ms": letter.timestamp_ms,
        "place": f"{letter.partition}:{letter.offset}",
        "reason": str(death.reason),
        "error_class": death.error_class,
        "message": (death.error_message or death.message)[:200],
        "value": contents.line(shown.value),
        "sent_back": "yes" if is_redriven else "",
        "address": letter_address(letter.topic, letter.partition, letter.offset),
    }


def letter_address(topic: str, partition: int, offset: int) -> str:
    """Return the address of a letter's page."""
    return address("letter", topic=topic, partition=partition, offset=offset)


async def letter(visit: Visit) -> Page:
    """Return one dead letter: why it is one, where its record was, its attempts and traceback."""
    topic = visit.topic()
    place = (visit.number("partition", 0) or 0, visit.number("offset", 0) or 0)
    found: tuple[Letter, bool] | None = None
    async with DeadLetterQueue(topic, **visit.options) as queue:
        selection = Selection(places=frozenset([place]))
        async for chunk in queue.chunks(selection, complete=True):
            found = chunk.letters[0], bool(chunk.redriven)
            break
    if found is None:
        raise NotThere(
            f"Topic {topic!r} partition {place[0]} has no letter at offset {place[1]}: it was "
            "purged, removed by retention, or never there."
        )
    shown, is_redriven = found
    contents = visit.contents(topic, partition=place[0], offset=place[1])
    await contents.prepare([shown.value])
    seen = contents.letter(shown)
    death = seen.death
    key, value = contents.whole(seen.key), contents.whole(seen.value)
    context = {
        "letter": shown,
        "story": seen.story,
        "death": death,
        "writer": "a broker" if shown.by_broker else "a worker" if shown.by_worker else "somebody",
        "is_redriven": is_redriven,
        "key": key,
        "value": value,
        "value_note": contents.note(shown.value),
        "headers": [(name, contents.whole(content)) for name, content in seen.headers],
        "traceback": preview(death.traceback.encode("utf-8", "replace"))
        if death.traceback
        else None,
    }
    data = {
        "topic": topic, "partition": shown.partition, "offset": shown.offset,
        "death": death._asdict(), "origin": seen.story.origin, "failures": seen.story.failures,
        "is_origin_claimed": shown.is_origin_claimed, "redriven": is_redriven,
        "key": key.text, "value": value.text, "value_note": context["value_note"],
    }  # fmt: skip
    return Page("letter.html", f"{topic} {place[0]}:{place[1]}", context, data)
