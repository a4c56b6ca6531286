r"""The result of a record: what became of it, kept in the store for the time ``result_for``.

    result/<group>/<id>    one line of JSON, "\n", and the encoded return value

The id is that of the header ``sharegroup-id``, which `send(id=...)` writes, or the record's place.
The header has no prefix of the worker, so retries, dead letters and redrives keep it, and so does a
record that a handler sends on with ``to``: the next handler's result has the same id in its group.
Any program that may write to the store can write a result, so a stored one is validated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sharegroup.dead_letters.story import PlacedRecord, Story, origin_of
from sharegroup.json_documents import object_of, typed_fields
from sharegroup.worker.ports import Header, WrittenRecord
from sharegroup.worker.stores.store import VALUE_BYTES_MAX, StoreUnavailable

ID_HEADER = "sharegroup-id"
"""The header with the id of a record's result."""
KEEP_HEADER, NOT_KEPT = "sharegroup-result", "none"
"""The header, and its content, of a record whose result is not kept."""
TRACE_CHARACTERS_MAX = 3_000
"""The length of the end of a traceback that is kept, if it fits into `TRACE_BYTES_MAX` of JSON."""
TRACE_CHARACTERS_FOREIGN_MAX = 1_000
"""The same otherwise, because a character takes up to six bytes in JSON."""
TRACE_BYTES_MAX = 6 * 1024
PLACE_CHARACTERS_MAX = 300
"""The name of a topic, a partition and an offset."""
FACTS_BYTES_MAX = 16 * 1024
"""The line of JSON.  A message of 500 characters takes up to 6,000 bytes in it."""
RESULT_BYTES_MAX = VALUE_BYTES_MAX - FACTS_BYTES_MAX
"""The size of a return value that is kept; of a larger one only its size is."""
NAME_CHARACTERS_MAX = 300
REASON_CHARACTERS_MAX = 100
_GIVEN_ID = re.compile(r"[A-Za-z0-9._:@-]{1,200}")
_STORED_ID = re.compile(_GIVEN_ID.pattern.encode("ascii"))

T = TypeVar("T")


class ResultState(StrEnum):
    """What became of a record in a group."""

    RETRYING = "retrying"
    """Its last run failed; it runs again, unless its failure proves to be final."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """It became a dead letter, or was rejected where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T]):
    """The result of a record in one group."""

    id: str
    state: ResultState
    value: T | None = None
    """What the handler returned; None unless it succeeded."""
    omitted_bytes: int = 0
    """The size of a return value that was too large to be kept; 0 if it was not."""
    error_class: str = ""
    """The class of the last error with its module; empty without an error."""
    error_text: str = ""
    reason: str = ""
    """Why it failed, as the dead letter has it; empty unless it failed."""
    traceback: str = ""
    """The end of the traceback of the last error, redacted; empty unless it failed."""
    attempts: int = 0
    """The runs of its handler that ended."""
    handler: str = ""
    worker_id: str = ""
    """The member that ran it last, as in dead letters."""
    sent_ms: int = 0
    """The timestamp of the record, in milliseconds since 1970."""
    started_ms: int = 0
    """When its last run began; 0 if it never ran."""
    ended_ms: int = 0


_FIELDS = {
    **dict.fromkeys(("traceback", "state", "error_class", "error_text", "reason"), str),
    **dict.fromkeys(("handler", "worker_id", "id"), str),
    **dict.fromkeys(("omitted_bytes", "attempts", "sent_ms", "started_ms", "ended_ms"), int),
}


def checked_id(given: object) -> str:
    """Return an id for `send`; raises ValueError if it is none."""
    if not isinstance(given, str) or _GIVEN_ID.fullmatch(given) is None:
        raise ValueError(
            f"send: id={given!r:.80}; expected 1 to 200 letters, digits or the characters . _ : @ -"
        )
    return given


def id_of(headers: Sequence[Header], delivery: PlacedRecord, story: Story) -> str:
    """Return the id of a record: that of its header, or its place.

    Every producer of a topic can write the header, so one that is not valid does not count.  A
    record that was sent with a delay was never in its topic, and has the id by which it waited.
    """
    for name, content in reversed(headers):
        if name == ID_HEADER and content is not None and _STORED_ID.fullmatch(content):
            return content.decode("ascii")
    origin = origin_of(delivery, story)
    if origin.offset < 0 and story.id is not None:
        return story.id
    return _place_id(origin)


def _place_id(place: PlacedRecord) -> str:
    return f"{place.topic}-{place.partition}-{place.offset}"


def id_from(given: str | WrittenRecord, topics: Collection[str]) -> str:
    """Return the id for a look-up: a text, or that of what `send` has returned."""
    if isinstance(given, str):
        if not 0 < len(given) <= PLACE_CHARACTERS_MAX:
            raise ValueError(
                f"result: id {given!r:.80}; expected 1 to {PLACE_CHARACTERS_MAX} characters"
            )
        return given
    if given.offset < 0 or given.topic not in topics:
        raise ValueError(
            f"result: {given!r:.200} is not the place of the record, which was sent with a delay "
            f"or in a transaction; send it with an id: send(..., id='order-42')"
        )
    return _place_id(given)


def result_name(group: str, result_id: str) -> str:
    """The store's name of a result."""
    return f"result/{group}/{result_id}"


def written(result: Result[bytes]) -> bytes:
    """Return a result as the store keeps it; a value that is too large is left out."""
    value, omitted_bytes = result.value, result.omitted_bytes
    if value is not None and len(value) > RESULT_BYTES_MAX:
        omitted_bytes, value = len(value), None
    facts: dict[str, Any] = {name: getattr(result, name) for name in _FIELDS}
    facts |= {
        "omitted_bytes": omitted_bytes,
        "has_value": int(value is not None),
        "handler": result.handler[:NAME_CHARACTERS_MAX],
        "worker_id": result.worker_id[:NAME_CHARACTERS_MAX],
        "reason": result.reason[:REASON_CHARACTERS_MAX],
        "traceback": trace_kept(result.traceback),
    }
    # ASCII, because an error's text may have lone surrogates, which UTF-8 cannot encode.
    return json.dumps(facts).encode("ascii") + b"\n" + (value or b"")


def trace_kept(trace: str) -> str:
    """Return the end of a traceback, which is next to the error, as long as it is kept."""
    kept = trace[-TRACE_CHARACTERS_MAX:]
    is_short = len(json.dumps(kept)) <= TRACE_BYTES_MAX
    return kept if is_short else kept[-TRACE_CHARACTERS_FOREIGN_MAX:]


def is_kept(headers: Sequence[Header]) -> bool:
    """Whether the result of a record is to be kept, if its handler has results."""
    return all(header != (KEEP_HEADER, NOT_KEPT.encode()) for header in headers)


def parsed(data: bytes, decode: Callable[[bytes], T]) -> Result[T]:
    """Return the result that the store has; raises StoreUnavailable if it is none."""
    line, _, value = data.partition(b"\n")
    try:
        document = object_of(line, bytes_max=FACTS_BYTES_MAX)
        document.setdefault("traceback", "")  # An earlier version has none.
        facts = typed_fields(document, {**_FIELDS, "has_value": int})
        state = ResultState(facts.pop("state"))
        has_value = facts.pop("has_value")
    except ValueError as error:
        raise StoreUnavailable(
            f"result: the store has {line!r:.80}; expected a result, which only workers write "
            f"there: {error}"
        ) from error
    return Result(state=state, value=decode(value) if has_value else None, **facts)
