"""Makes Spark use the Python interpreter of this process.

Spark looks for Python data sources, and runs Python code, with the command in ``PYSPARK_PYTHON``,
by default ``python3``.  It checks in a shell whether the command exists, without quoting it.  For a
path with a space the check fails, and Spark then finds no Python data source.  So the command must
be a bare name on the ``PATH``.
"""

from __future__ import annotations

import os
import sys


def ensure_python() -> None:
    """Make Spark use this Python: put its folder first on the ``PATH`` of this process.

    Call it before the SparkSession is created.  In an activated virtual environment it has no
    effect.
    """
    folder, name = os.path.split(sys.executable)
    os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
    os.environ |= {"PYSPARK_DRIVER_PYTHON": name, "PYSPARK_PYTHON": name}
