"""Properties files: our parser beside `java.util.Properties`, on the same texts."""

from __future__ import annotations

import random

import pytest

from sharegroup.cli.common.properties import parse_properties
from tests.support import kafka_peer
from tests.support.java_shell import NO_COMPILER, javac, printed_by

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(WHY_NO_JAVA is not None, reason=WHY_NO_JAVA or ""),
]

PIECES = (
    *("a", "key", "b.c", "1", "x y", "é", "\ufeff", "\u00a0", "\u200b", "😀"),
    *("=", ":", " ", "\t", "\f", "\v", "#", "!", "==", " = "),
    *("\n", "\r", "\r\n", "\n\n", "\x85", "\u2028", "\u2029", "\x1c", "\x1e", "\0"),
    *("\\", "\\\\", "\\\n", "\\\r\n   ", "\\ ", "\\=", "\\:", "\\#", "\\t", "\\f", "\\q"),
    *("\\u00e9", "\\u000a", "\\ud83d\\ude00", "\\u12", "\\uu0041", "\\U0041"),
)
TEXTS = 5_000


def texts() -> list[str]:
    chance = random.Random(27)
    return ["".join(chance.choices(PIECES, k=chance.randint(1, 14))) for _ in range(TEXTS)]


def theirs(printed: str) -> dict[str, str] | None:
    if printed == "malformed":
        return None
    pairs = (pair.partition("=") for pair in printed.split(",") if printed)
    return {text_of(key): text_of(value) for key, _, value in pairs}


def text_of(code: str) -> str:
    return bytes.fromhex(code).decode("utf-16-be", "replace")


def ours(text: str) -> dict[str, str] | None:
    try:
        return dict(parse_properties(text))
    except ValueError:
        return None


def test_every_text_has_the_pairs_that_java_reads() -> None:
    given = texts()
    lines = [text.encode().hex() for text in given]
    printed = printed_by(kafka_peer.kafka_libs(), "PropertiesReader", lines)
    assert len(printed) == TEXTS
    for text, line in zip(given, printed, strict=True):
        mine, java = ours(text), theirs(line)
        for pairs in (mine, java):
            # Java makes an empty pair of some continued lines without any text.
            if pairs is not None and pairs.get("") == "":
                del pairs[""]
        assert mine == java, repr(text)
    assert sum(line == "malformed" for line in printed) > 50
