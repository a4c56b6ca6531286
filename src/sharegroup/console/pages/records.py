"""Records of a topic: looking through them, and one record with its state in each share group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sharegroup.client.fetch.offsets import OffsetSpec, offsets_of
from sharegroup.client.fetch.record_reading import PartitionRange, partition_ranges, read_records
from sharegroup.client.records import TopicPartition
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import NotThere, Page, Visit
from sharegroup.console.pages.record_states import states_of
from sharegroup.console.parameters import BadQuery
from sharegroup.console.records.contents import Contents
from sharegroup.console.records.moments import moment_ms
from sharegroup.console.records.preview import Preview
from sharegroup.console.records.search import (
    PAGE,
    READ_MS,
    TEXT_BYTES_MAX,
    Budget,
    Found,
    Search,
    SearchResult,
    Wanted,
    parsed_positions,
    positions_text,
)
from sharegroup.dead_letters.expression import Expression, ExpressionError
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.errors import KafkaError
from sharegroup.wire.batches.records import DecodedRecord

ORDERS = ("newest", "oldest")
STARTS = ("at", "time", "offset")
"""The parameters that say where to start."""
SEARCH = ("topic", "partition", "order", "key", "value", "header", "where", *STARTS)
"""The parameters of a search."""
HEADERS_SHOWN_MAX = 100


class Asked(NamedTuple):
    """A search that an address describes."""

    contents: Contents
    wanted: Wanted
    ranges: list[PartitionRange]
    order: str
    positions: Mapping[int, int]
    """Where to begin; none: at the ends of the topic."""

    async def look(
        self, visit: Visit, positions: Mapping[int, int], budget: Budget = PAGE
    ) -> SearchResult:
        """Look from these positions on, within a budget."""
        search = Search(visit.reading, self.ranges, self.wanted, self.contents, budget=budget)
        find = search.oldest if self.order == "oldest" else search.newest
        return await find(positions)


async def asked(visit: Visit) -> Asked:
    """Return the search that the address describes; its topic is there, and may be seen."""
    topic, wanted = visit.topic(), _wanted(visit)
    contents = visit.contents(topic)
    if not (contents.is_shown or wanted.is_everything):
        raise BadQuery("you may not see the values of this topic, so you cannot search them")
    described = (await visit.admin.describe_topics([topic]))[topic]
    if isinstance(described, KafkaError):
        raise NotThere(f"Topic {topic!r}: {described}")
    ranges = await partition_ranges(visit.reading, topic, timeout_ms=READ_MS)
    partition = visit.number("partition")
    if partition is not None:
        if partition >= len(ranges):
            numbers = f"0 to {len(ranges) - 1}"
            raise NotThere(f"Topic {topic!r} has no partition {partition}; it has {numbers}.")
        ranges = [ranges[partition]]
    positions = parsed_positions(visit.query.get("at", ""))
    has_start = not positions and (visit.query.get("offset") or visit.query.get("time"))
    order = "oldest" if has_start else visit.query.get("order", "newest")
    if order not in ORDERS:
        raise BadQuery(f"order: expected one of {', '.join(ORDERS)}, found {order[:40]!r}")
    if order == "oldest" and not positions:
        positions = await _start(visit, ranges)
    return Asked(contents, wanted, ranges, order, positions)


async def records(visit: Visit) -> Page:
    """Return records of a topic, newest or oldest first, that meet some conditions."""
    known = visit.watcher.view.topics
    names = sorted(known, key=lambda name: (known[name].is_internal, name))
    if not visit.query.get("topic", ""):
        context = {**_form(visit), "topics": names, "rows": None, "result": None, "more": None}
        return Page("records.html", "Records", context, {"topics": names})
    search = await asked(visit)
    topic = search.contents.topic
    result = await search.look(visit, search.positions)
    rows = [_row(search.contents, found) for found in result.found]
    more = None
    if not result.is_complete:
        kept = {name: text for name, text in visit.query.items() if name not in STARTS}
        at = positions_text(result.positions)
        more = address("records", **{**kept, "order": search.order, "at": at})
    context = {
        **_form(visit),
        "topics": names,
        "rows": rows,
        "registry_problem": search.contents.registry_problem,
        "result": result,
        "more": more,
        "query": {name: visit.query[name] for name in SEARCH if visit.query.get(name)},
    }
    data = {
        "topic": topic,
        "records": [_document(row) for row in rows],
        "looked_at": result.looked_at,
        "unreadable": result.unreadable,
        "next": None if result.is_complete else positions_text(result.positions),
    }
    return Page("records.html", topic, context, data)


def _form(visit: Visit) -> dict[str, Any]:
    names = (name for name in SEARCH if name != "at")
    return {"form": {name: visit.query.get(name, "") for name in names}, "orders": ORDERS}


def _wanted(visit: Visit) -> Wanted:
    texts = {name: visit.query.get(name, "") for name in ("key", "value", "header", "where")}
    for name, text in texts.items():
        if len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
            raise BadQuery(f"{name}: expected at most {TEXT_BYTES_MAX} bytes")
    try:
        where = Expression(texts["where"]) if texts["where"].strip() else None
    except ExpressionError as error:
        raise BadQuery(f"where: {error}") from error
    return Wanted(
        key=texts["key"].encode("utf-8", "surrogatepass"),
        value=texts["value"].encode("utf-8", "surrogatepass"),
        header=texts["header"],
        where=where,
    )


async def _start(visit: Visit, ranges: list[PartitionRange]) -> dict[int, int]:
    """Return where to start, oldest first: an offset, a time, or the log's start."""
    offset = visit.number("offset")
    if offset is not None:
        return {log_range.where.partition: offset for log_range in ranges}
    at_ms = moment_ms("time", visit.query.get("time", ""))
    if at_ms is None:
        return {}
    found = await offsets_of(
        visit.reading, [log_range.where for log_range in ranges], at_ms, timeout_ms=READ_MS
    )
    return {
        log_range.where.partition: log_range.end
        if found[log_range.where] < 0
        else found[log_range.where]
        for log_range in ranges
    }


def _row(contents: Contents, found: Found) -> dict[str, Any]:
    topic, record = contents.topic, found.record
    return {
        "topic": topic,
        "partition": found.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": contents.line(record.key),
        "value": contents.line(record.value),
        "headers": len(record.headers),
        "address": address("record", topic=topic, partition=found.partition, offset=record.offset),
    }


def _document(row: dict[str, Any]) -> dict[str, Any]:
    plain = {
        name: value.text if isinstance(value, Preview) and value.kind != "null" else value
        for name, value in row.items()
    }
    return {name: None if isinstance(value, Preview) else value for name, value in plain.items()}


async def record(visit: Visit) -> Page:
    """Return one record: key, value, headers, its state in each share group, and its story."""
    topic = visit.topic()
    partition, offset = visit.number("partition", 0), visit.number("offset", 0)
    assert partition is not None, "the default is a number"
    assert offset is not None, "the default is a number"
    where = TopicPartition(topic, partition)
    title = f"{topic} {partition} {offset}"
    if visit.is_live:
        states = await states_of(visit, where, offset)
        return Page("record.html", title, states._asdict())
    contents = visit.contents(topic, partition=partition, offset=offset)
    read = await _read(visit, where, offset)
    await contents.prepare([read.value])
    found = contents.record(read)
    states = await states_of(visit, where, offset)
    headers = [
        (name, contents.whole(content)) for name, content in found.headers[:HEADERS_SHOWN_MAX]
    ]
    story = contents.story(story_of(found.headers))
    key, value = contents.whole(found.key), contents.whole(found.value)
    context = {
        "where": where,
        "offset": offset,
        "timestamp_ms": found.timestamp,
        "key": key,
        "value": value,
        "value_note": contents.note(read.value),
        "headers": headers,
        "more_headers": max(0, len(found.headers) - HEADERS_SHOWN_MAX),
        **states._asdict(),
        "story": story,
        "is_letter": topic in visit.watcher.view.letters,
    }
    data = {
        "topic": topic, "partition": partition, "offset": offset, "timestamp_ms": found.timestamp,
        "key": key.text, "value": value.text, "value_note": context["value_note"],
        "headers": [(name, shown.text) for name, shown in headers],
        "groups": states.states, "groups_left_out": states.groups_left_out,
    }  # fmt: skip
    return Page("record.html", title, context, data)


async def _read(visit: Visit, where: TopicPartition, offset: int) -> DecodedRecord:
    wanted = PartitionRange(where, offset, offset + 1)
    end = await offsets_of(visit.reading, [where], OffsetSpec.LATEST, timeout_ms=READ_MS)
    if offset < end[where]:
        async for batch in read_records(visit.reading, wanted, timeout_ms=READ_MS):
            for found in batch:
                if found.offset == offset:
                    return found
    raise NotThere(
        f"Topic {where.topic!r} partition {where.partition} has no record at offset {offset}: "
        "retention or compaction has removed it, it is a control record, or it is not there yet."
    )
