"""Spark finds the unpacked PySpark, and what is nowhere else stays on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sharegroup.spark_python import unpacked

PY4J = "py4j-0.10.9.9"
LIB = "lib/pyspark.zip", f"lib/{PY4J}-src.zip"


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, with PySpark and Py4J."""
    installed = f"{PY4J}.dist-info/METADATA"
    made(tmp_path, "pyspark/__init__.py", installed, *(f"pyspark/python/{name}" for name in LIB))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def test_zip_files_of_what_is_installed_go(packages: Path) -> None:
    entries = [*(str(packages / "pyspark/python" / name) for name in LIB), "/mine", "x.zip", ""]
    assert list(unpacked(entries)) == ["/mine", "x.zip", ""]


def test_zip_files_of_another_environment_stay(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["/another"])
    entries = [str(packages / "pyspark/python" / name) for name in LIB]
    assert list(unpacked(entries)) == entries


def test_py4j_of_another_version_stays(packages: Path) -> None:
    (packages / f"{PY4J}.dist-info").rename(packages / "py4j-0.10.9.8.dist-info")
    entries = [str(packages / "pyspark/python" / name) for name in LIB]
    assert list(unpacked(entries)) == entries[1:]


def test_downloaded_spark_has_pyspark_beside_the_zip_file(tmp_path: Path) -> None:
    made(tmp_path, "spark/python/pyspark/__init__.py", *(f"spark/python/{name}" for name in LIB))
    entries = [str(tmp_path / "spark/python" / name) for name in LIB]
    assert list(unpacked(entries)) == [str(tmp_path / "spark/python"), entries[1]]
