"""Spark finds the Python that runs this program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sharegroup.spark import ensure_python


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
