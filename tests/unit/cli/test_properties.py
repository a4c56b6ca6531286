"""Java's properties files, as Kafka's brokers and tools read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.cli.properties import parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1", [("a", "1")]),
        ("  a  =  1  ", [("a", "1")]),
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
