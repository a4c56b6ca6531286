"""Makes Spark use the Python interpreter of this process.

Spark looks for Python data sources, and runs Python code, with the command in ``PYSPARK_PYTHON``,
by default ``python3``.  It checks in a shell whether the command exists, without quoting it.  For a
path with a space the check fails, and Spark then finds no Python data source.  So the command must
be a bare name on the ``PATH``.

A bare name also suits executors on other machines.  The driver sends them the command, and they
look it up on their own ``PATH``, where the driver's folder may not exist.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sharegroup.spark_python import COMMAND

_SPARKS_DEFAULT = "python3"


def ensure_python(*, unpacked: bool = True) -> None:
    """Make Spark use this Python: put its folder first on the ``PATH`` of this process.

    Call it before the SparkSession is created.  It replaces ``PYSPARK_PYTHON`` and
    ``PYSPARK_DRIVER_PYTHON``.  If ``unpacked``, they name ``sharegroup-spark-python`` where pip has
    installed it beside this Python: the same Python, whose processes start sooner because they do
    not compile PySpark from Spark's zip file.  Executors on other machines need that command on
    their ``PATH``, too; where they lack it, say ``unpacked=False``.
    """
    name = _on_path()
    if unpacked and Path(os.path.dirname(sys.executable), COMMAND).exists():
        name = COMMAND
    os.environ |= {"PYSPARK_DRIVER_PYTHON": name, "PYSPARK_PYTHON": name}


def set_default_python() -> None:
    """Make Spark use this Python unless ``PYSPARK_PYTHON`` names another one.

    `sharegroup.spark` calls it when it is imported.  ``PYSPARK_DRIVER_PYTHON`` is left as it is.
    """
    if not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = _on_path()


def _on_path() -> str:
    """Put the folder of this Python first on the ``PATH`` and return its name there.

    The name is Spark's default if that is the same interpreter, so executors on other machines
    start what they would start without this module.
    """
    folder, name = os.path.split(sys.executable)
    os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
    default = Path(folder, _SPARKS_DEFAULT)
    is_same = default.exists() and default.samefile(sys.executable)
    return _SPARKS_DEFAULT if is_same else name
