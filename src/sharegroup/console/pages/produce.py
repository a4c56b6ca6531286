"""A record for trying something out: a form, and what it sends."""

from __future__ import annotations

from sharegroup.client.produce.producer import Producer
from sharegroup.console.access.roles import Change
from sharegroup.console.pages.change import Changed, Fields
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import Page, Visit
from sharegroup.console.parameters import BadQuery, is_number

HEADERS_MAX = 50


async def form(visit: Visit) -> Page:
    """Return the form for a record in a topic."""
    topic = visit.topic()
    context = {
        "topic": topic,
        "may_produce": visit.rights.may_change(Change.PRODUCE, topic=topic),
        "why_not": visit.rights.why_not(Change.PRODUCE, topic=topic),
    }
    return Page("produce.html", topic, context, {"topic": topic})


async def perform(visit: Visit, fields: Fields) -> Changed:
    """Send one record, and lead to it."""
    topic, partition = fields.get("topic", ""), fields.get("partition", "")
    if partition and not is_number(partition):
        raise BadQuery(f"partition: expected a whole number, found {partition[:40]!r}")
    key = fields.get("key", "").encode("utf-8", "surrogatepass")
    # A browser sends the lines of a text with CR LF.
    value = fields.get("value", "").replace("\r\n", "\n").encode("utf-8", "surrogatepass")
    async with Producer(**visit.options) as producer:
        sent = await producer.send_and_wait(
            topic,
            None if fields.get("null") == "yes" else value,
            key=key or None,
            headers=_headers(fields.get("headers", "")),
            partition=int(partition) if partition else None,
        )
    where = {"topic": topic, "partition": sent.partition, "offset": sent.offset}
    return Changed(address("record", **where), where)


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    """Read a header from each line: ``name=content``, or ``name`` alone for null."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > HEADERS_MAX:
        raise BadQuery(f"headers: expected at most {HEADERS_MAX}, found {len(lines)}")
    headers: list[tuple[str, bytes | None]] = []
    for line in lines:
        name, separator, content = line.partition("=")
        headers.append((name.strip(), content.encode() if separator else None))
    return headers
