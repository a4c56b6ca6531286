"""Decides when a record expires, from its timestamp and from its header ``expires``; pure.

    timestamp --- after ---> expires            a record of a topic, and its retries
    due time  --- after ---> expires            one that was sent with a delay, or redriven
    header ``expires``                          as it says; not of one that was redriven

Somebody who redrives a dead letter wants it to run, although it is old.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
    origin = story.origin
    # The delivered record of these has the time at which it was due, or redriven.
    counts_anew = story.redrives or (origin is not None and origin.partition == NOWHERE)
    sent_ms = delivery.timestamp_ms if origin is None or counts_anew else origin.timestamp_ms
    if sent_ms < 0:  # A record without a timestamp has no age.
        return by_header
    by_age = sent_ms + expiry.after_ms
    return by_age if by_header is None else min(by_age, by_header)


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
