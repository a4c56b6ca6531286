"""A transcript: prose, commands behind ``> ``, and under each, indented, what core said.

Everything indented is made anew from the commands; the rest stays as it is.
"""

from __future__ import annotations

from pathlib import Path

from tests.transcripts.scene import Scene

FOLDER = Path(__file__).parent / "stories"
STORIES = sorted(FOLDER.glob("*.txt"))


def told_again(text: str) -> str:
    """The transcript with what core says today."""
    scene = Scene()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if line.startswith("> "):
            lines += [f"  {said}" for said in scene.run(line.removeprefix("> "))]
    return "\n".join(lines) + "\n"
