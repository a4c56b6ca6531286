"""Dead letters as JSON documents: those of `dlq show --json`, `dlq export` and the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sharegroup.client.records import Header
from sharegroup.dead_letters.letter import Death, Letter
from sharegroup.dead_letters.story import Story
from sharegroup.record_documents import Row, as_json


class LetterContent(Protocol):
    """What a document shows of a letter's record and death; a letter has all of it."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...
    @property
    def all_headers(self) -> Sequence[Header]: ...
    @property
    def death(self) -> Death: ...
    @property
    def story(self) -> Story: ...


def letter_document(
    letter: Letter, *, redriven: bool, content: LetterContent | None = None
) -> dict[str, Any]:
    """Return a letter as a document: the record as ``consume --json`` writes it, and its death.

    ``content`` replaces what the letter has, for example without its masked parts.
    """
    content = content or letter
    return {
        **_record_document(letter, content, content.headers),
        **_facts(letter, content, redriven=redriven),
    }


def exported_document(
    letter: Letter, *, redriven: bool, content: LetterContent | None = None
) -> dict[str, Any]:
    """Return a letter with all its headers, which ``produce --json`` reads as the same record.

    Its reason and history are in the field ``dead``.
    """
    content = content or letter
    dead = _facts(letter, content, redriven=redriven)
    return {**_record_document(letter, content, content.all_headers), "dead": dead}


def _record_document(
    letter: Letter, content: LetterContent, headers: Sequence[Header]
) -> dict[str, Any]:
    return as_json(
        Row(
            letter.topic, letter.partition, letter.offset, letter.timestamp_ms,
            content.key, content.value, headers,
        )
    )  # fmt: skip


def _facts(letter: Letter, content: LetterContent, *, redriven: bool) -> dict[str, Any]:
    death, story = content.death, content.story
    origin = story.origin
    return {
        "reason": death.reason,
        "error_class": death.error_class or None,
        "error_message": death.error_message or death.message or None,
        "group": death.group or None,
        "handler": death.handler or None,
        "member": death.member or None,
        "delivery_count": death.delivery_count,
        "failures": story.failures,
        "attempts": [attempt._asdict() for attempt in story.attempts],
        "redrives": story.redrives,
        "redriven": redriven,
        "redrive_id": letter.redrive_id,
        "origin": None if origin is None else origin._asdict(),
        "by_broker": death.by_broker,
        "claimed": letter.is_origin_claimed,
        "record_missing": letter.lacks_its_record and not letter.has_payload,
        "traceback": death.traceback or None,
    }
