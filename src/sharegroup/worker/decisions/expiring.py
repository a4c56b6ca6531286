"""Decides when a record expires, from its timestamp and from its header ``expires``; pure.

    timestamp ------------- after ---> expires  a record of a topic, and its retries
    due time, redrive ----- after ---> expires  one that was sent with a delay, or redriven, and its
                                                retries, whose stories have this time (`aged`)
    header ``expires``                          as it says; not of one that was redriven

A dead letter is redriven to run, although it is old.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sharegroup.dead_letters.story import Story
from sharegroup.dead_letters.story_headers import NOWHERE
from sharegroup.worker.declarations.policies import Expiry
from sharegroup.worker.ports import DeliveredRecord, Header

log = logging.getLogger(__name__)

EXPIRES = "expires"
"""The header with the time at which a record expires, of the application or of `Sender`."""
CONTENT_BYTES_MAX = 64
TIME_MS_MAX = 2**63 - 1


def expires_at_ms(expiry: Expiry, delivery: DeliveredRecord, story: Story) -> int | None:
    """Return the time at which a record expires, in milliseconds since 1970; None if it never does.

    A header that is no time is logged, and the record does not expire by it.
    """
    by_header = None if story.redrives else _of_header(delivery.headers)
    if expiry.after_ms is None:
        return by_header
    from_ms = _age_from_ms(delivery, story)
    if from_ms < 0:  # A record without a timestamp has no age.
        return by_header
    by_age = from_ms + expiry.after_ms
    return by_age if by_header is None else min(by_age, by_header)


def aged(story: Story, delivery: DeliveredRecord, before: Story) -> Story:
    """Return the story of a record that is about to wait, with the time its age counts from.

    ``before`` is its story as it was delivered.  Otherwise each retry of a record that was sent
    with a delay, or redriven, would begin its age anew.
    """
    from_ms = _age_from_ms(delivery, before)
    if from_ms < 0 or not _counts_anew(before):
        return story
    return replace(story, age_from_ms=from_ms)


def _age_from_ms(delivery: DeliveredRecord, story: Story) -> int:
    if story.age_from_ms is not None:
        return story.age_from_ms
    if not _counts_anew(story):
        return delivery.timestamp_ms if story.origin is None else story.origin.timestamp_ms
    if not story.redrives and story.due_ms is not None:
        return story.due_ms  # It may have been moved, and so written, long after.
    return delivery.timestamp_ms


def _counts_anew(story: Story) -> bool:
    """Whether the age of a record counts from when it was due, or redriven, and not sent."""
    return story.redrives > 0 or (story.origin is not None and story.origin.partition == NOWHERE)


def expires_header(at_ms: int) -> Header:
    """The header of a record that expires at this time."""
    return EXPIRES, str(at_ms).encode("ascii")


def _of_header(headers: Sequence[Header]) -> int | None:
    content = None
    for name, value in headers:
        if name == EXPIRES:
            content = value  # The last one counts, as in `Record.header`.
    if content is None:
        return None
    at_ms = parsed_time_ms(content)
    if at_ms is None:
        log.warning(
            "event=expires_refused content=%r expected='milliseconds since 1970, or a time with "
            "its zone as 2027-01-31T09:00:00+01:00' effect='the record does not expire by it'",
            content[:CONTENT_BYTES_MAX],
        )
    return at_ms


def parsed_time_ms(content: bytes) -> int | None:
    """Parse milliseconds since 1970, or a time of ISO 8601 with a zone; None if it is neither."""
    if len(content) > CONTENT_BYTES_MAX:
        return None
    if content.isdigit():
        return min(int(content), TIME_MS_MAX)
    try:
        time = datetime.fromisoformat(content.decode("ascii"))
        return None if time.tzinfo is None else max(round(time.timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        return None
