"""The options that say how a verb writes records: ``--json``, ``--format``, Kafka's formatter."""

from __future__ import annotations

import functools
import sys
from typing import Any

import click

from sharegroup.cli.common.cluster_access import Verb, kept_pairs
from sharegroup.cli.records.formats.kafka_formatter import kafka_writer
from sharegroup.cli.records.formats.template import FormatError, parse_template, unescape
from sharegroup.cli.records.formats.writing import (
    RowWriter,
    json_writer,
    template_writer,
    with_escaped_names,
)

NULL_DEFAULT = "null"


def record_format_options(verb: Verb) -> Verb:
    """Add the options to a verb, which is called with ``write``, a `RowWriter`."""

    @functools.wraps(verb)
    def with_writer(
        *,
        as_json: bool,
        form: str | None,
        null_marker: str | None,
        properties: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        write = _writer(as_json=as_json, form=form, null=null_marker, properties=properties)
        return verb(write=write, **rest)

    for option in (
        click.option(
            "--formatter-property",
            "--property",
            "properties",
            metavar="KEY=VALUE",
            multiple=True,
            help="Property of Kafka's formatter: print.key, key.separator, ...",
        ),
        click.option(
            "--null-marker", metavar="TEXT", help="Text that is written for null.  [default: null]"
        ),
        click.option(
            "--format", "form", metavar="FORMAT", help="Format of the output, with the verbs above."
        ),
        click.option(
            "--json", "as_json", is_flag=True, help="Write each record as one line of JSON."
        ),
    ):
        with_writer = option(with_writer)
    return with_writer


def _writer(
    *, as_json: bool, form: str | None, null: str | None, properties: tuple[str, ...]
) -> RowWriter:
    if sum(map(bool, (as_json, form, properties))) > 1:
        raise click.UsageError("--json, --format and --formatter-property exclude each other")
    if as_json:
        return json_writer()
    try:
        if form:
            null_bytes = unescape(NULL_DEFAULT if null is None else null)
            return template_writer(parse_template(form), null=null_bytes)
        chosen = kept_pairs(properties, "--formatter-property")
        write = kafka_writer(chosen if null is None else {"null.literal": null, **chosen})
        return with_escaped_names(write) if sys.stdout.isatty() else write
    except FormatError as error:
        raise click.UsageError(str(error)) from error
