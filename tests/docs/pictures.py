"""Knows which code has drawn each committed picture: ``docs/pictures/drawn.json``.

    python -m tests.docs.pictures build/demo    take the pictures of a run of `make demo`

The hash is that of the code without comments and layout, so only a change of the code counts.
"""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
DRAWN = PICTURES / "drawn.json"
OF_THE_DEMO = {
    "timeline.png": ("examples/flights/timeline.py", "examples/flights/timeline_picture.py"),
    "delays.png": ("examples/flights/picture.py",),
    "query.png": ("examples/flights/query_picture.py",),
}
"""The pictures of `make demo`, each with the modules that draw it."""


def code_hash(modules: Sequence[str]) -> str:
    """Return a hash of what these modules do."""
    trees = [ast.dump(ast.parse((ROOT / module).read_text())) for module in modules]
    return hashlib.sha256("\n".join(trees).encode()).hexdigest()


def entry(picture: Path, modules: Sequence[str]) -> dict[str, str]:
    """Return what is noted of a picture: its own hash, and that of the code which drew it."""
    drawn = hashlib.sha256(picture.read_bytes()).hexdigest()
    return {"picture": drawn, "code": code_hash(modules)}


def take(folder: Path) -> None:
    """Copy the pictures of a run of the demo into the documentation."""
    for name in OF_THE_DEMO:
        shutil.copy(folder / name, PICTURES / name)
    entries = {name: entry(PICTURES / name, modules) for name, modules in OF_THE_DEMO.items()}
    DRAWN.write_text(json.dumps(entries, indent=2) + "\n")


if __name__ == "__main__":
    take(Path(sys.argv[1]))
