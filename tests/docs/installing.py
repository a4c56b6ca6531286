"""Writes how sharegroup is installed into all pages and examples; run it after a change of
`sharegroup.installation.ON_AN_INDEX`: ``python -m tests.docs.installing``.

    from a checkout     pip install '.[worker]'
    from an index       pip install 'sharegroup[worker]'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sharegroup.installation import ON_AN_INDEX

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(
    r"""(?P<before>pip\ install\ (?:-\S+\ )*(?:[\w-]+\ )*)
        (?P<quote>'?)(?P<source>sharegroup|\.)(?P<extras>\[[a-z,]+\])?(?P=quote)(?![\w.@/-])""",
    re.VERBOSE,
)
"""A command that installs this package, before or after other ones."""


def pages() -> Iterator[Path]:
    """Yield the files for users that may say how to install it."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from sorted(path for path in (ROOT / "examples").rglob("*") if path.is_file())


def installing(text: str, *, on_an_index: bool = ON_AN_INDEX) -> str:
    """Return the text with the command that works today."""
    source = "sharegroup" if on_an_index else "."

    def command(match: re.Match[str]) -> str:
        extras = match["extras"] or ""
        quote = "'" if extras else ""
        return f"{match['before']}{quote}{source}{extras}{quote}"

    return COMMAND.sub(command, text)


def main() -> None:
    """Rewrite the files."""
    for path in pages():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # A picture or an archive.
        if (new := installing(text)) != text:
            path.write_text(new)
            print(f"rewritten: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
