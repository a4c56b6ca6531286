"""Names and texts from peers in logs and on terminals: one line, no control characters."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sharegroup
from sharegroup.cli.common.log_lines import SafeFormatter
from sharegroup.cli.common.output import Listing, complain, done
from sharegroup.cli.records.formats.writing import with_escaped_names
from sharegroup.cli.records.record_formats import kafka_writer, record_format_options
from sharegroup.client.net.refusals import refused
from sharegroup.errors import InvalidRequest
from sharegroup.record_documents import Row, json_line
from sharegroup.worker.telemetry.logs import JsonFormatter, LogfmtFormatter

HOSTILE = "\x1b]0;owned\x07\r\n2026 level=error forged\x7f\x9b31m\u202e\u2066\udc80"
SOURCES = Path(sharegroup.__file__).parent

PEERS = frozenset(
    {
        "client_id", "group_id", "member_id", "instance_id", "transactional_id", "protocol_type",
        "client_software_name", "client_software_version", "error_message", "metadata",
    }
)  # fmt: skip
"""Names of values that a peer of the broker chose."""


def raised() -> tuple[type[BaseException], BaseException, object]:
    try:
        raise ValueError(HOSTILE)  # noqa: TRY301
    except ValueError:
        kind, error, trace = sys.exc_info()
        return kind, error, trace


def line_of(formatter: logging.Formatter, message: str, **more: object) -> str:
    record = logging.LogRecord("somebody", logging.WARNING, "", 0, message, (), None)
    record.__dict__.update(more)
    return formatter.format(record)


@pytest.mark.parametrize(
    "formatter", [SafeFormatter("%(name)s %(message)s"), LogfmtFormatter(), JsonFormatter()]
)
def test_log_lines_are_printable(formatter: logging.Formatter) -> None:
    for message in (HOSTILE, f"event=x name={HOSTILE}"):
        assert line_of(formatter, message).isprintable()
        assert line_of(formatter, message, extra_fact=HOSTILE).isprintable()
        with_trace = line_of(formatter, message, exc_info=raised())
        assert all(line.isprintable() for line in with_trace.split("\n"))


def test_json_log_line_keeps_the_text() -> None:
    assert json.loads(line_of(JsonFormatter(), HOSTILE))["message"] == HOSTILE


def test_error_texts_are_one_printable_line() -> None:
    for error in (
        InvalidRequest(f"group {HOSTILE}"),
        refused(42, HOSTILE),
        refused(42, "no", topic=HOSTILE),
        InvalidRequest(HOSTILE * 5000),
    ):
        assert str(error).isprintable()
        assert repr(error).isprintable()


def test_output_of_the_command_line_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"{HOSTILE}\nsecond line")
    done(f"deleted {HOSTILE}", as_json=False)
    printed = capsys.readouterr()
    assert [line.isprintable() for line in printed.out.splitlines()] == [True]
    assert all(line.isprintable() for line in printed.err.splitlines())
    listing = Listing([{"group": HOSTILE, "topics": [HOSTILE], "by": {HOSTILE: [1]}}], (
        "group", "topics", "by",
    ), "")  # fmt: skip
    assert all(line.isprintable() for line in listing.text().split("\n"))


def test_keys_and_headers_are_escaped_for_a_terminal_and_values_are_not() -> None:
    row = Row(
        "orders", 0, 0, 0, HOSTILE.encode(errors="surrogatepass"), b"\x1b[1mvalue\xff",
        (("\x1b[2m", b"\x1b[3m\xff"), ("none", None)),
    )  # fmt: skip
    plain = kafka_writer({"print.key": "true", "print.headers": "true"})
    assert row.key in plain(row)
    shown = with_escaped_names(plain)(row)
    head, value = shown.rsplit(b"\t", 1)
    assert value == b"\x1b[1mvalue\xff\n"
    assert head.decode().replace("\t", "").isprintable()


def test_pipe_gets_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    @record_format_options
    def shown(write: Callable[[Row], bytes]) -> bytes:
        return write(Row("orders", 0, 0, 0, b"\x1bkey", b"\x1bvalue", ()))

    options = {"as_json": False, "form": None, "null_marker": None}
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert shown(properties=("print.key=true",), **options) == b"\x1bkey\t\x1bvalue\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert shown(properties=("print.key=true",), **options) == b"\\x1bkey\t\x1bvalue\n"


def conversions(text: str) -> list[str]:
    """The conversion characters of a %-format, in order."""
    found, at = [], 0
    while (at := text.find("%", at)) >= 0:
        end = at + 1
        while end < len(text) and text[end] in "-+ #0123456789.":
            end += 1
        if end < len(text) and text[end] != "%":
            found.append(text[end])
        at = end + 1
    return found


def log_calls() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.relative_to(SOURCES)}:{call.lineno}", call)
        for part in ("broker", "storage")
        for path in (SOURCES / part).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "log"
    ]


def last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def test_log_calls_of_the_broker_quote_names_chosen_by_peers() -> None:
    """%r escapes; an exception's text is escaped if it is a KafkaError's, and quoted otherwise."""
    calls = log_calls()
    assert len(calls) > 50
    raw = [
        where
        for where, call in calls
        if call.args and isinstance(call.args[0], ast.Constant)
        for kind, value in zip(conversions(str(call.args[0].value)), call.args[1:], strict=False)
        if kind == "s" and last_name(value) in PEERS
    ]
    assert raw == []


@pytest.mark.parametrize("text", ["\u202eevil", "a\x7fb", "\x9b31m", "\u2066\udc80", "\U000e0001"])
def test_lines_of_json_are_printable_and_mean_the_same(text: str) -> None:
    line = json_line({"value": text, text: [text]})
    assert line.endswith(b"\n")
    assert line[:-1].decode().isprintable()
    assert json.loads(line) == {"value": text, text: [text]}


def test_lines_of_json_have_other_texts_as_they_are() -> None:
    assert json_line({"value": "Grüße 日本"}) == '{"value":"Grüße 日本"}\n'.encode()
