"""The command ``sharegroup-spark-python``: this Python, for Spark's Python processes.

Spark puts ``pyspark.zip`` of ``SPARK_HOME`` on the path of each.  Python stores no bytecode for a
zip file, so each process compiles PySpark again: half a second of processor time when a query
starts.  The same modules lie unpacked beside the file, with bytecode; the command starts Python
with these on its path.

It is no part of `sharegroup.spark`, whose import takes as long as what the command saves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

COMMAND = "sharegroup-spark-python"


def main() -> None:
    """Become this Python, with the arguments of the command."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(unpacked(entries))
    os.execv(sys.executable, (sys.executable, *sys.argv[1:]))  # noqa: S606  A shell is not wanted.


def unpacked(entries: list[str]) -> Iterator[str]:
    """Yield the entries of a ``PYTHONPATH`` without the zip files that need not be there.

    An installed PySpark is its own ``SPARK_HOME``, and pip installs Py4J beside it; a Spark that
    was downloaded has the modules in its folder ``python``, and Py4J only in the zip file.
    """
    for entry in entries:
        path = Path(entry)
        if path.parent.name != "lib" or path.suffix != ".zip" or len(path.parents) < 4:
            yield entry
            continue
        of_spark, packages = path.parents[1], path.parents[3]
        if _is_installed(path, packages):
            continue
        is_unpacked = path.name == "pyspark.zip" and (of_spark / "pyspark/__init__.py").is_file()
        yield str(of_spark) if is_unpacked else entry


def _is_installed(path: Path, packages: Path) -> bool:
    """Return whether a zip file of the PySpark in this folder has what Python finds there, too."""
    if path.parents[2].name != "pyspark" or str(packages) not in sys.path:
        return False
    if path.name == "pyspark.zip":
        return (packages / "pyspark/__init__.py").is_file()
    version = path.name.removesuffix("-src.zip")  # py4j-0.10.9.9
    return (packages / f"{version}.dist-info").is_dir()
