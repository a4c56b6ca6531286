"""The options that say how a verb writes records: ``--json``, ``--format``, Kafka's formatter."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from sharegroup.cli.common.cluster_access import kept_pairs
from sharegroup.cli.common.options import gathered
from sharegroup.cli.records.formats.template import FormatError, parse_template, unescape
from sharegroup.cli.records.formats.writing import (
    RowWriter,
    json_writer,
    template_writer,
    with_escaped_names,
)
from sharegroup.record_documents import Row
from sharegroup.wire.batches.header_names import name_bytes

NULL_DEFAULT = "null"


def _log_writer(*, properties: tuple[str, ...], **others: Any) -> RowWriter:
    for name in kept_pairs(properties, "--formatter-property"):
        if name in OF_BATCHES:
            raise click.UsageError(f"formatter property {name}: use {OF_BATCHES[name]}")
    return _writer(properties=properties, **others)


def _writer(
    *, as_json: bool, form: str | None, null_marker: str | None, properties: tuple[str, ...]
) -> RowWriter:
    if sum(map(bool, (as_json, form, properties))) > 1:
        raise click.UsageError("--json, --format and --formatter-property exclude each other")
    if as_json:
        return json_writer()
    try:
        if form:
            null_bytes = unescape(NULL_DEFAULT if null_marker is None else null_marker)
            return template_writer(parse_template(form), null=null_bytes)
        chosen = kept_pairs(properties, "--formatter-property")
        write = kafka_writer(
            chosen if null_marker is None else {"null.literal": null_marker, **chosen}
        )
        return with_escaped_names(write) if sys.stdout.isatty() else write
    except FormatError as error:
        raise click.UsageError(str(error)) from error


_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="Write each record as one line of JSON."),
    click.option(
        "--format", "form", metavar="FORMAT", help="Format of the output, with the verbs above."
    ),
    click.option(
        "--null-marker", metavar="TEXT", help="Text that is written for null.  [default: null]"
    ),
    click.option(
        "--formatter-property",
        "--property",
        "properties",
        metavar="KEY=VALUE",
        multiple=True,
        help="Property of Kafka's formatter: print.key, key.separator, ...",
    ),
)
record_format_options = gathered("write", _writer, *_OPTIONS)
"""Adds the options to a verb, which is called with ``write``, a `RowWriter`."""
log_format_options = gathered("write", _log_writer, *_OPTIONS)
"""The same for a verb that reads a log, and whose rows have no facts of batches."""


# Kafka's formatter: records as Kafka's console consumers print them, by its properties.
#
#     CreateTime:17 <tab> Partition:0 <tab> Offset:5 <tab> Delivery:1 <tab> Epoch:0
#         <tab> h1:v1,h2:v2 <tab> key <tab> value
#
# A part is printed if its property is true. By default, only the value is printed.


SWITCHES = (
    "print.timestamp",
    "print.partition",
    "print.offset",
    "print.delivery",
    "print.epoch",
    "print.headers",
    "print.key",
    "print.value",
)
TEXTS = {
    "key.separator": "\\t",
    "line.separator": "\\n",
    "headers.separator": ",",
    "null.literal": "null",
}
NOT_PRESENT = b"NOT_PRESENT"
"""What Kafka prints for the delivery count of a consumer group, and for an unknown epoch."""
NO_TIMESTAMP = b"NO_TIMESTAMP"
OF_BATCHES = {
    "print.timestamp": "--format '%d ...'",
    "print.epoch": "sharegroup consume, or for the epochs of a log: sharegroup logs",
}
"""Kafka's properties that need facts of the record's batch, and what to use without them."""
ELSEWHERE = {
    "key.deserializer": "--format '%k{hex} ...'",
    "value.deserializer": "--format '%v{hex} ...'",
    "headers.deserializer": "--format '%h{%k=%v{hex} } ...'",
}
"""Kafka's properties that are not supported here, and what to use instead."""


def kafka_writer(properties: Mapping[str, str]) -> RowWriter:
    """Return a function that formats rows as the properties say.

    Raises FormatError for an unknown or unsupported property.
    """
    for name in properties:
        if name in ELSEWHERE:
            raise FormatError(f"formatter property {name}: use {ELSEWHERE[name]}")
        if name not in (*SWITCHES, *TEXTS):
            known_names = ", ".join((*SWITCHES, *TEXTS))
            raise FormatError(f"there is no formatter property {name}; known: {known_names}")
    parts_wanted = frozenset(
        name
        for name in SWITCHES
        if properties.get(name, str(name == "print.value")).strip().lower() == "true"
    )
    texts = {name: unescape(properties.get(name, default)) for name, default in TEXTS.items()}

    def write(row: Row) -> bytes:
        parts = _parts(row, parts_wanted, texts)
        # Like Kafka, ends the line after the last part that is printed.
        return texts["key.separator"].join(parts) + texts["line.separator"] if parts else b""

    return write


def _parts(row: Row, wanted: frozenset[str], texts: Mapping[str, bytes]) -> list[bytes]:
    null, parts = texts["null.literal"], []
    if "print.timestamp" in wanted:
        kind = b"LogAppendTime" if row.has_append_time else b"CreateTime"
        parts.append(NO_TIMESTAMP if row.timestamp_ms < 0 else b"%s:%d" % (kind, row.timestamp_ms))
    if "print.partition" in wanted:
        parts.append(b"Partition:%d" % row.partition)
    if "print.offset" in wanted:
        parts.append(b"Offset:%d" % row.offset)
    if "print.delivery" in wanted:
        parts.append(b"Delivery:%s" % _number_or_not(row.delivery_count or None))
    if "print.epoch" in wanted:
        parts.append(b"Epoch:%s" % _number_or_not(row.leader_epoch))
    if "print.headers" in wanted:
        headers = [
            name_bytes(name) + b":" + (null if content is None else content)
            for name, content in row.headers
        ]
        parts.append(texts["headers.separator"].join(headers) or b"NO_HEADERS")
    if "print.key" in wanted:
        parts.append(null if row.key is None else row.key)
    if "print.value" in wanted:
        parts.append(null if row.value is None else row.value)
    return parts


def _number_or_not(number: int | None) -> bytes:
    return NOT_PRESENT if number is None else b"%d" % number
