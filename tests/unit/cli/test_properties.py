"""Java's properties files, as Kafka's brokers and tools read them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from sharegroup.cli.common.properties import origin_of, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1", [("a", "1")]),
        ("  a  =  1  ", [("a", "1  ")]),
        ("a=1\\ ", [("a", "1 ")]),
        ("a=1\x85b=2\u2028c=3\x1dd", [("a", "1\x85b=2\u2028c=3\x1dd")]),
        ("\va\u00a0b=1\f", [("\va\u00a0b", "1\f")]),
        ("a=\\ud83d\\ude00", [("a", "\U0001f600")]),
        ("a=\\ud83d", [("a", "\ufffd")]),
        ("\\\n# a=1\nb=2", [("b", "2")]),
        ("a: 1", [("a", "1")]),
        ("a 1", [("a", "1")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("a=b=c:d", [("a", "b=c:d")]),
        ("# a=1\n! b=2\n\n   # c=3\nd=4", [("d", "4")]),
        ("a=1,\\\n    2,\\\n    3\nb=4", [("a", "1,2,3"), ("b", "4")]),
        ("a=1\\\n# no comment", [("a", "1# no comment")]),
        ("a=C:\\\\\nb=2", [("a", "C:\\"), ("b", "2")]),
        ("a\\:b\\=c\\ d=1", [("a:b=c d", "1")]),
        ("a=\\u00e9\\t\\n\\q", [("a", "é\t\nq")]),
        ("a=1\r\nb=2\r\n", [("a", "1"), ("b", "2")]),
        ("a=ends\\", [("a", "ends")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
    ],
)
def test_properties_are_parsed_like_in_java(text: str, pairs: list[tuple[str, str]]) -> None:
    assert list(parse_properties(text)) == pairs


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_property_file_may_be_utf_8_or_latin_1(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "some.properties"
    file.write_bytes("name=Zoë\n".encode(encoding))
    assert read_properties(file) == [("name", "Zoë")]


def test_values_of_a_file_are_trimmed_as_in_kafka(tmp_path: Path) -> None:
    file = tmp_path / "some.properties"
    file.write_text("a = 1 \t\nb=\\t2\\ \n", encoding="utf-8")
    assert read_properties(file) == [("a", "1"), ("b", "2")]


def test_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=kafka:9092\n", encoding="utf-8-sig")
    assert read_properties(file) == [("bootstrap.servers", "kafka:9092")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_refused_by_its_name(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    mark = "" if encoding == "utf-16" else "\ufeff"
    file.write_text(f"{mark}bootstrap.servers=kafka:9092\n", encoding=encoding)
    with pytest.raises(click.UsageError, match=r"client\.properties is UTF-16; save it as UTF-8"):
        read_properties(file)


def test_incomplete_escape_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("a=1\n\nssl.keystore.location=C:\\users\\me\n", encoding="utf-8")
    with pytest.raises(click.UsageError, match=r"properties, line 3: expected four .* after \\u"):
        read_properties(file)


def test_origin_is_that_of_the_key_that_an_error_names() -> None:
    origins = {"port": "line 1", "num.partitions": "line 2", "log.dirs": "line 3"}
    assert origin_of("num.partitions=0: expected at least 1, see log.dirs", origins) == "line 2"
    assert origin_of("unknown configuration key 'port': did you mean ...", origins) == "line 1"
    assert origin_of("reported ports, num.partitions.max and log.dirs.", origins) == "line 3"
    assert origin_of("the disk is full", origins) == ""
