"""Records from bytes: lines with separators, JSON lines, and templates of any bytes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from sharegroup.cli.records.formats.lines import LineForm, line_form
from sharegroup.cli.records.formats.reading import (
    LineReader,
    NewRecord,
    Reader,
    TemplateReader,
    json_record,
)
from sharegroup.cli.records.formats.template import FormatError, RecordFormatError, parse_template
from sharegroup.cli.records.formats.writing import json_writer, template_writer
from sharegroup.record_documents import Row
from sharegroup.wire.batches.header_names import name_bytes


def read(reader: Reader, *pieces: bytes) -> list[NewRecord]:
    found = [record for piece in pieces for record in reader.feed(piece)]
    return [*found, *reader.finish()]


def lines(form: LineForm, text: bytes) -> list[NewRecord]:
    return read(LineReader(form.parse), text)


def by_template(form: str, *pieces: bytes, null: bytes | None = None) -> list[NewRecord]:
    return read(TemplateReader(parse_template(form), null=null), *pieces)


def in_bytes(text: bytes) -> Iterable[bytes]:
    return (text[index : index + 1] for index in range(len(text)))


def test_each_line_is_a_value_also_an_empty_one_and_one_without_an_end() -> None:
    assert lines(LineForm(), b"one\n\n\xff\x00\r\nlast") == [
        NewRecord(None, b"one"),
        NewRecord(None, b""),
        NewRecord(None, b"\xff\x00\r"),
        NewRecord(None, b"last"),
    ]


def test_line_is_read_for_any_division_of_its_bytes() -> None:
    form = LineForm(parse_key=True, key_separator=b"::")
    expected = [NewRecord(b"k", b"v:1"), NewRecord(b"", b"")]
    assert read(LineReader(form.parse), *in_bytes(b"k::v:1\n::\n")) == expected


def test_headers_key_and_value_are_read_in_this_order() -> None:
    form = line_form({"parse.key": "true", "parse.headers": "TRUE", "null.marker": "NULL"})
    assert lines(form, b"a:1,b:NULL\tk\tv\tw\nNULL\tNULL\tNULL\n") == [
        NewRecord(b"k", b"v\tw", (("a", b"1"), ("b", None))),
        NewRecord(None, None),
    ]


def test_separators_are_configurable() -> None:
    form = line_form(
        {
            "parse.key": "true",
            "key.separator": " ",
            "parse.headers": "true",
            "headers.delimiter": r"\x1e",
            "headers.separator": ";",
            "headers.key.separator": "=",
        }
    )
    assert lines(form, b"a=x=y;b=\x1ek v") == [NewRecord(b"k", b"v", (("a", b"x=y"), ("b", b"")))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"ok\tv\nbad", r"line 2: no key.separator b'\\t' in b'bad'"),
        (b"x" * 100, r"line 1: no key.separator b'\\t' in b'x{60}'\.\.\."),
    ],
)
def test_line_without_its_separator_is_named(text: bytes, problem: str) -> None:
    with pytest.raises(RecordFormatError, match=problem):
        lines(LineForm(parse_key=True), text)


def test_header_without_a_value_or_with_null_for_a_name_is_refused() -> None:
    form = LineForm(parse_headers=True, null_marker=b"NULL")
    with pytest.raises(RecordFormatError, match=r"no headers\.key\.separator"):
        lines(form, b"a\tv")
    with pytest.raises(RecordFormatError, match="name can't be null"):
        lines(form, b"NULL:1\tv")


def test_header_name_that_is_not_utf_8_keeps_its_bytes() -> None:
    (record,) = lines(LineForm(parse_headers=True), b"\xff:1\tv")
    ((name, value),) = record.headers
    assert (name, name_bytes(name), value) == ("\ufffd", b"\xff", b"1")


def test_errors_can_be_ignored_as_in_kafkas_tool() -> None:
    form = line_form({"parse.key": "true", "parse.headers": "true", "ignore.error": "true"})
    assert lines(form, b"no tab\na,b:1\tno key\n") == [
        NewRecord(None, b"no tab"),
        NewRecord(None, b"no key", (("a", None), ("b", b"1"))),
    ]


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"parse.kye": "true"}, "no reader property parse.kye; known: parse.key"),
        ({"key.separator": ""}, "key.separator must not be empty"),
        ({"headers.separator": ":"}, "must differ"),
        ({"null.marker": ":"}, "headers.key.separator and null.marker must differ"),
    ],
)
def test_properties_that_contradict_each_other_are_refused(
    properties: dict[str, str], problem: str
) -> None:
    with pytest.raises(FormatError, match=problem):
        line_form(properties)


def test_json_output_of_consume_can_be_read() -> None:
    row = Row("t", 1, 7, 1_700, b"\xff", b"text", (("h", b"\xfe"), ("n", None)), 2, 30_000)
    assert read(LineReader(json_record), json_writer()(row)) == [
        NewRecord(b"\xff", b"text", (("h", b"\xfe"), ("n", None)), 1, 1_700)
    ]


def test_json_value_that_is_no_string_is_kept_as_json() -> None:
    line = b'{"key":5,"value":{"b":[true,null],"a":"\xc3\xa9"}}'
    assert read(LineReader(json_record), line) == [
        NewRecord(b"5", b'{"b":[true,null],"a":"\xc3\xa9"}')
    ]


def test_json_without_a_value_is_a_tombstone() -> None:
    assert read(LineReader(json_record), b'{"key":"k"}\n') == [NewRecord(b"k", None)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON"),
        (b"[1]", "expected a JSON object, found a list"),
        (b'{"value":NaN}', "not JSON: NaN is not allowed in JSON"),
        (b'{"value":"\\ud800"}', "value: .*surrogates"),
        (b'{"value_base64":"?"}', "value: "),
        (b'{"headers":{"a":"b"}}', "headers: expected an array"),
        (b'{"headers":[{"value":"b"}]}', "headers: expected objects like"),
        (b'{"headers":[{"name":"\\ud800"}]}', "headers: name"),
        (b'{"partition":-1}', "partition: expected a number from 0 to 2147483647, found -1"),
        (b'{"partition":true}', "partition: expected a number"),
        (b'{"timestamp":"now"}', "timestamp: expected a number"),
        (b'{"timestamp":1e30}', "timestamp: expected a number"),
        (b'{"timestamp":9223372036854775808}', "timestamp: expected a number"),
        (b'{"timestamp":-9223372036854775809}', "timestamp: expected a number"),
    ],
)
def test_json_that_is_no_record_is_refused_with_its_line(line: bytes, problem: str) -> None:
    with pytest.raises(RecordFormatError, match=f"line 1: {problem}"):
        read(LineReader(json_record), line + b"\n")


def test_template_fields_end_at_the_following_text() -> None:
    expected = [
        NewRecord(b"k1", b"v1", (), 3, 17),
        NewRecord(None, b"v:2", (), 0, 18),
    ]
    form, text = r"%p;%d %k:%v\n", b"3;17 k1:v1\n0;18 NULL:v:2"
    assert by_template(form, text, null=b"NULL") == expected
    assert by_template(form, *in_bytes(text), null=b"NULL") == expected


def test_value_at_the_end_takes_the_whole_input() -> None:
    assert by_template("%k:%v", b"k:a\nb", b"\nc\n") == [NewRecord(b"k", b"a\nb\nc\n")]


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (r"%v{hex}\n", b"00ff\n", b"\x00\xff"),
        (r"%v{base64} ", b"AP8= ", b"\x00\xff"),
        (r"%v{string}\n", b'"a\\nb"\n', b"a\nb"),
        (r"%v{json}\n", b'{ "a" : 1 }\n', b'{"a":1}'),
        ("%V{big16}%v", b"\x00\x02\n\n", b"\n\n"),
        ("%V:%v", b"3:a:b", b"a:b"),
        ("%V{hex} %v", b"a 0123456789", b"0123456789"),
    ],
)
def test_template_modifiers_decode_their_encoding(form: str, text: bytes, value: bytes) -> None:
    assert by_template(form, text) == [NewRecord(None, value)]


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        (r"%v{hex}\n", b"xyz\n", r"record 1: %v\{hex\}"),
        (r"%v{base64}\n", b"AA=A\n", r"record 1: %v\{base64\}"),
        (r"%v{string}\n", b"5\n", "expected a JSON string, found a int"),
        (r"%v{json}\n", b"{\n", "not a JSON document"),
        (r"%p %v\n", b"0 a\nx b\n", "record 2: %p: expected a number, found ''"),
        ("%V{big32}%v", b"\xff\xff\xff\xfe", "a length of 4294967294 bytes"),
        ("%V{big32}%v", b"\x7f\xff\xff\xff", "a length of 2147483647 bytes"),
        ("<%v>", b"<a><b>c", "record 3: expected b'<', found b'c'"),
        ("<%v>", b"<a><b", "record 2: the input ends before the end of the record"),
        ("%V{big32}%v", b"\x00", "record 1: the input ends before the end of the record"),
        ("%H{big8}%h{%k=%v;}%v\n", b"\xffa\n", "record 1: a number of -1 headers"),
        ("%H %h{%k=%v;}%v\n", b"-3 a\n", "record 1: a number of -3 headers"),
        ("%p{big8}%v\n", b"\xff\n", "p: expected a number from 0"),
        ("%p{big32}%v\n", b"\xff\xff\xff\xfe\n", "p: expected a number from 0"),
    ],
)
def test_input_that_is_no_record_is_refused_with_its_number(
    form: str, text: bytes, problem: str
) -> None:
    with pytest.raises(RecordFormatError, match=problem):
        by_template(form, text)


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ("abc", "needs a verb"),
        ("%k%v", "%k needs its length before it, %K, or text after it"),
        (r"%h{%k=%v,}\n", "%h can only be read after the number of headers, %H"),
        ("%H %h{%k=%v}", "%v needs text after it, up to the '}'"),
        ("%H %h{%V{big8}%v}", "to read %h, its format must contain %k"),
        (r"%o %v\n", "%o can be written, but not read"),
        (r"%d{rfc3339} %v\n", r"%d\{rfc3339\} can be written, but not read"),
    ],
)
def test_template_that_can_not_be_read_is_refused(form: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        TemplateReader(parse_template(form))


parts = st.none() | st.binary(max_size=20)
records = st.builds(
    NewRecord,
    parts,
    parts,
    st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), parts), max_size=3).map(
        tuple
    ),
    st.integers(0, 9) | st.just(2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
)


@given(st.lists(records, max_size=5), st.integers(1, 7))
def test_length_prefixed_bytes_survive_a_round_trip(found: list[NewRecord], step: int) -> None:
    form = parse_template(
        "%p{big32}%d{little64}%K{big32}%k%V{big16}%v%H{big8}%h{%K{big8}%k%V{little32}%v}"
    )
    write = template_writer(form)
    data = b"".join(
        write(Row("t", row.partition or 0, 0, row.timestamp_ms or 0, *row[:3])) for row in found
    )
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    assert read(TemplateReader(form), *pieces) == found


@given(st.lists(records, max_size=5))
def test_json_records_survive_a_round_trip(found: list[NewRecord]) -> None:
    write = json_writer()
    data = b"".join(
        write(Row("t", row.partition or 0, 0, row.timestamp_ms or 0, *row[:3])) for row in found
    )
    assert read(LineReader(json_record), data) == found


@pytest.mark.parametrize("size", [127, 128, 200, 254])
def test_length_in_one_byte_is_read_as_it_was_written(size: int) -> None:
    form = parse_template("%K{big8}%k%V{little8}%v")
    row = Row("t", 0, 0, 0, b"k" * size, None)
    assert read(TemplateReader(form), template_writer(form)(row)) == [NewRecord(b"k" * size, None)]


def test_length_whose_bytes_mean_null_is_not_written() -> None:
    with pytest.raises(RecordFormatError, match="255 does not fit into big8"):
        template_writer(parse_template("%V{big8}%v"))(Row("t", 0, 0, 0, None, b"v" * 255))


@pytest.mark.parametrize("form", ["%d %v\n", "%d{hex} %v\n", "%d{big64}%v\n", "%d{little64}%v\n"])
@given(timestamp_ms=st.integers(-(2**63), 2**63 - 1))
def test_any_timestamp_is_read_as_it_was_written(form: str, timestamp_ms: int) -> None:
    template = parse_template(form)
    line = template_writer(template)(Row("t", 0, 0, timestamp_ms, None, b"v"))
    assert read(TemplateReader(template), line)[0].timestamp_ms == timestamp_ms
