"""``sharegroup dlq list`` without a topic: the dead-letter topics of a cluster and their counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.cli.common.output import Listing, Row
from sharegroup.cli.dead_letters.dlq_options import moment_text
from sharegroup.dead_letters.letter_topics import LetterTopic, letter_topics

if TYPE_CHECKING:
    # Imported for its type alone, as in `cluster_access`.
    from sharegroup.client.admin.admin_client import AdminClient

COLUMNS = ("topic", "partitions", "letters", "last_letter", "groups")
SPARE = ("partitions", "groups", "last_letter")
NOTHING = (
    "There are no dead-letter topics: no topic's name ends with .dead, and no group names one.\n"
    "Dead letters of another topic: sharegroup dlq list TOPIC."
)


async def dead_letter_topics(admin: AdminClient) -> Listing:
    """Return a row for each dead-letter topic that the user may see."""
    found = await letter_topics(admin)
    return Listing(list(map(_row, found.topics)), COLUMNS, NOTHING, found.errors, spare=SPARE)


def _row(topic: LetterTopic) -> Row:
    newest = topic.last_letter_ms
    return {
        "topic": topic.name,
        "partitions": topic.partition_count,
        "letters": topic.letters,
        "last_letter": moment_text(newest) if topic.letters and newest is not None else None,
        "groups": list(topic.groups),
    }
