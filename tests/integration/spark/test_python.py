"""Spark finds the Python that runs this program."""

from __future__ import annotations

import os
import subprocess
import sys

import pyspark
import pytest

from sharegroup.spark import ensure_python
from sharegroup.spark.python import set_default_python
from sharegroup.spark_python import COMMAND

PRINTED = """
import os, sharegroup.spark
print(os.environ["PYSPARK_PYTHON"])
print(os.environ["PATH"])
"""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A Python in a folder with blanks, and an environment that names others."""
    python = tmp_path / "a folder" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho found\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    monkeypatch.setenv("PATH", os.environ["PATH"])


@pytest.mark.parametrize("variable", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_shell_finds_this_python_without_quotes_also_below_a_blank(elsewhere, variable):
    ensure_python()
    # This is how Spark asks: org.apache.spark.util.Utils.checkCommandAvailable.
    asked = ["sh", "-c", f"command -v {os.environ[variable]} && {os.environ[variable]}"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert told == f"{sys.executable}\nfound\n"


def test_command_beside_this_python_is_preferred(elsewhere):
    command = os.path.join(os.path.dirname(sys.executable), COMMAND)
    os.symlink(sys.executable, command)
    ensure_python()
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == COMMAND
    ensure_python(unpacked=False)
    assert os.environ["PYSPARK_PYTHON"] == "python"


def test_default_is_set_only_if_no_python_is_named(elsewhere, monkeypatch):
    path = os.environ["PATH"]
    set_default_python()
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PATH"]) == ("/other/python", path)
    monkeypatch.delenv("PYSPARK_PYTHON")
    set_default_python()
    assert os.environ["PYSPARK_PYTHON"] == "python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "jupyter"


def test_name_is_sparks_default_where_that_is_the_same_python(elsewhere, tmp_path, monkeypatch):
    """Executors on other machines look the name up, and have a python3 rather than a python."""
    folder = tmp_path / "a folder" / "bin"
    (folder / "python3").symlink_to(folder / "python")
    monkeypatch.delenv("PYSPARK_PYTHON")
    set_default_python()
    assert os.environ["PYSPARK_PYTHON"] == "python3"


def test_import_names_this_python(monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", os.defpath)  # As in an environment that is not activated.
    told = subprocess.run(
        [sys.executable, "-c", PRINTED], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    folder = os.path.dirname(sys.executable)
    assert told == ["python3", f"{folder}{os.pathsep}{os.defpath}"]


def test_command_is_this_python():
    command = os.path.join(os.path.dirname(sys.executable), COMMAND)
    code = "import os, sys; print(sys.prefix, sys.argv, os.environ['PYTHONPATH'])"
    told = subprocess.run(
        [command, "-c", code, "a b"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "/mine"},
    ).stdout
    assert told == f"{sys.prefix} ['-c', 'a b'] /mine\n"


def test_spark_imports_the_unpacked_pyspark(spark):
    """The session of these tests was made after `ensure_python`."""
    (found,) = spark.range(1, numPartitions=1).rdd.map(lambda _: pyspark.__file__).collect()
    assert os.path.isfile(found)
    assert found == pyspark.__file__
