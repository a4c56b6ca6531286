"""``docs/benchmarks.md`` has parts that commands write, between two comments each, and prose.

    <!-- peers -->    tests.bench.peers; README has a part of this name, too
    <!-- alone -->    tests.bench.alone
    <!-- cpu -->      tests.bench.cpu
    <!-- end -->

A command replaces what is between its own two comments and leaves the rest as it is.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.bench.failure import BenchError

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"


def replace_part(text: str, name: str, part: str) -> str:
    """The document with another text in the part of this name."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    replaced, times = pattern.subn(lambda match: f"{match[1]}\n{part.strip()}\n\n{match[2]}", text)
    if times != 1:
        raise BenchError(f"expected one part <!-- {name} --> in the document, found {times}")
    return replaced


def write_part(name: str, part: str, document: Path = DOCUMENT) -> None:
    document.write_text(replace_part(document.read_text(), name, part))
