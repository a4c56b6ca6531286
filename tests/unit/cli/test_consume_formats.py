"""The language of --format, and how records look in it, in JSON and in Kafka's own form."""

from __future__ import annotations

import json

import pytest

from sharegroup.cli.records.formats.template import (
    FormatError,
    RecordFormatError,
    Verb,
    parse_template,
    unescape,
)
from sharegroup.cli.records.formats.writing import json_writer, template_writer
from sharegroup.cli.records.record_formats import kafka_writer
from sharegroup.record_documents import Row

ROW = Row(
    topic="orders",
    partition=3,
    offset=300,
    timestamp_ms=1_700_000_000_123,
    key=b"k\xc3\xa9y",
    value=b'{"a": [1,\n 2]}',
    headers=(("trace", b"\x01\x02"), ("empty", None)),
    delivery_count=2,
    deadline_ms=1_700_000_030_000,
    left_ms=29_877,
    number=7,
)
BINARY = ROW._replace(key=None, value=b"\xff\x00\n")


def written(form: str, row: Row = ROW, null: bytes = b"") -> bytes:
    return template_writer(parse_template(form), null=null)(row)


def test_template_is_literals_and_verbs_in_order() -> None:
    assert parse_template(r"%p\t%v{hex}%%%{\x41\\") == (
        Verb("p"),
        b"\t",
        Verb("v", "hex"),
        b"%{A\\",
    )


def test_headers_have_a_nested_template() -> None:
    (headers,) = parse_template("%h{%k=%v{base64},}")
    assert headers == Verb("h", "", (Verb("k"), b"=", Verb("v", "base64"), b","))


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ("%q", r"character 1: %q is not one of"),
        ("a%", r"character 2: % is not one of"),
        ("%v{utf8}", r"%v\{utf8\}: expected hex, base64, string, json"),
        ("%t{hex}", r"%t\{hex\}: expected none"),
        ("%o{big24}", r"expected hex, big8"),
        ("%d{iso}", "expected rfc3339"),
        ("%h", "needs a format for each header"),
        ("%h{%o}", "%o is not one of %k %v %K %V"),
        ("%v{hex", "without a '}'"),
        ("%h{%k", "without a '}'"),
        ("%v}", "a '}' without a '{'"),
        (r"\q", r"expected \\n, \\t"),
        (r"\x4", r"or \\xHH"),
    ],
)
def test_template_that_means_nothing_is_refused_with_the_place(form: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        parse_template(form)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("%t %p %o %i", b"orders 3 300 7"),
        ("%k", b"k\xc3\xa9y"),
        ("%k{hex}", b"6bc3a979"),
        ("%k{base64}", b"a8OpeQ=="),
        ("%k{string}", '"kéy"'.encode()),
        ("%v{json}", b'{"a":[1,2]}'),
        ("%T %K %V %H", b"6 4 14 2"),
        ("%c %l %L", b"2 1700000030000 29877"),
        ("%d", b"1700000000123"),
        ("%d{rfc3339}", b"2023-11-14T22:13:20.123Z"),
        ("%d{%Y/%m/%d %H}", b"2023/11/14 22"),
        ("%o{hex}", b"12c"),
        ("%o{big32}%p{big8}%o{little16}", b"\x00\x00\x01\x2c\x03\x2c\x01"),
        ("%h{%k=%v{hex};}", b"trace=0102;empty=;"),
        ("%h{%K %V,}", b"5 2,5 -1,"),
    ],
)
def test_each_verb_writes_its_part(form: str, expected: bytes) -> None:
    assert written(form) == expected


def test_bytes_are_written_unchanged() -> None:
    assert written("%v|", BINARY) == b"\xff\x00\n|"


def test_null_is_the_marker_and_has_length_minus_one() -> None:
    assert written("%k %K", BINARY, null=b"NULL") == b"NULL -1"
    assert written("%K{big32}", BINARY) == b"\xff\xff\xff\xff"
    assert written("%k{json}%k{string}", BINARY, null=b"NULL") == b"nullnull"


@pytest.mark.parametrize(
    ("form", "value", "problem"),
    [
        ("%v{json}", b"{", "not a JSON document"),
        ("%v{json}", b"NaN", "NaN is not allowed in JSON"),
        ("%v{json}", b"[" * 100_000, "not a JSON document"),
        ("%v{string}", b"\xff", "not UTF-8 text"),
        ("%o{big8}", b"", "300 does not fit into big8"),
    ],
)
def test_value_without_the_requested_form_is_a_record_format_error(
    form: str, value: bytes, problem: str
) -> None:
    with pytest.raises(RecordFormatError, match=problem):
        written(form, ROW._replace(value=value))


def test_escaped_lone_surrogate_in_json_stays_escaped() -> None:
    """UTF-8 has no surrogates, but JSON has escape sequences for them."""
    assert written("%v{json}", ROW._replace(value=b'["\\ud800"]')) == b'["\\ud800"]'


def test_timestamp_that_is_no_date_is_a_record_format_error() -> None:
    with pytest.raises(RecordFormatError, match="is not a valid date"):
        written("%d{rfc3339}", ROW._replace(timestamp_ms=2**62))


def test_json_has_text_as_text_and_other_bytes_in_base64() -> None:
    assert (
        json_writer()(ROW)
        == (
            '{"topic":"orders","partition":3,"offset":300,"timestamp":1700000000123,"key":"kéy",'
            '"value":"{\\"a\\": [1,\\n 2]}","headers":[{"name":"trace","value":"\\u0001\\u0002"},'
            '{"name":"empty","value":null}],"delivery_count":2,"deadline":1700000030000}\n'
        ).encode()
    )
    binary = json.loads(json_writer()(BINARY))
    assert binary["key"] is None
    assert binary["value_base64"] == "/wAK"
    assert "value" not in binary


def test_separators_are_typed_with_escapes() -> None:
    assert unescape(r"\t|\x00") == b"\t|\x00"
    with pytest.raises(FormatError, match=r"or \\xHH"):
        unescape("\\")


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, b'{"a": [1,\n 2]}\n'),
        ({"print.key": "true"}, b'k\xc3\xa9y\t{"a": [1,\n 2]}\n'),
        (
            {"print.partition": "true", "print.offset": "TRUE", "print.value": "false"},
            b"Partition:3\tOffset:300\n",
        ),
        (
            {"print.delivery": "true", "print.value": "false", "key.separator": "|"},
            b"Delivery:2\n",
        ),
        (
            {"print.timestamp": "true", "print.epoch": "true", "print.value": "false"},
            b"CreateTime:1700000000123\tEpoch:NOT_PRESENT\n",
        ),
        (
            {
                "print.headers": "true",
                "print.value": "false",
                "null.literal": "-",
                "headers.separator": ";",
            },
            b"trace:\x01\x02;empty:-\n",
        ),
        ({"print.value": "false"}, b""),
    ],
)
def test_kafkas_properties_give_the_output_of_kafkas_formatter(
    properties: dict[str, str], expected: bytes
) -> None:
    assert kafka_writer(properties)(ROW) == expected


def test_record_without_headers_is_printed_like_in_kafka() -> None:
    write = kafka_writer({"print.headers": "true", "print.key": "true"})
    assert write(BINARY._replace(headers=())) == b"NO_HEADERS\tnull\t\xff\x00\n\n"


def test_error_for_an_unsupported_property_names_the_replacement() -> None:
    with pytest.raises(FormatError, match=r"key\.deserializer: use --format '%k"):
        kafka_writer({"key.deserializer": "my.Deserializer"})
    with pytest.raises(FormatError, match=r"no formatter property print\.kye; known: print\.time"):
        kafka_writer({"print.kye": "true"})
