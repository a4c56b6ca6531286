"""Tests what `make house` counts, on a package of two rooms."""

from __future__ import annotations

from pathlib import Path

from tests.support.house import read_source, repeated_classes


def test_a_module_is_counted(tmp_path: Path) -> None:
    module = tmp_path / "room.py"
    module.write_text(
        '"""A room."""\n\n# Why.\nfrom os import (\n    path,\n)\n\n\nclass Door:\n'
        "    def open(self, a, b):  # Not a line of its own.\n        return '# no comment'\n"
    )
    source = read_source(module)
    assert source[1:4] == (11, 3, 1)
    assert [function.name for function in source.functions] == ["open"]
    assert source.classes == ["Door"]


def test_a_class_name_may_stand_once_in_each_room(tmp_path: Path) -> None:
    for place in ("hall/door.py", "hall/gate.py", "attic/door.py"):
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text("class Door: ...\n")
    sources = [read_source(path) for path in sorted(tmp_path.rglob("*.py"))]
    assert repeated_classes(tmp_path, sources) == {"hall": ["Door"]}


def test_a_blocking_client_may_have_the_name_of_its_twin(tmp_path: Path) -> None:
    for place in ("client/consumer.py", "client/sync/consumer.py", "client/sync/again.py"):
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("class Consumer: ...\n" if "again" not in place else "class Other: ...\n")
    sources = [read_source(path) for path in sorted(tmp_path.rglob("*.py"))]
    assert repeated_classes(tmp_path, sources) == {}
