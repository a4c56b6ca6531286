"""The Python that runs this program, for Spark as well.

Spark looks for data sources, and runs what is written in Python, with the command that
``PYSPARK_PYTHON`` names, or else ``python3``.  Whether there is such a command it asks a shell,
and puts no quotes around it: for a path with a blank the answer is no, and Spark then knows no
Python data source at all.  So the command has to be found by its bare name.
"""

from __future__ import annotations

import os
import sys


def ensure_python() -> None:
    """Let Spark use this Python: its folder comes first on the ``PATH`` of this process.

    Call it before the SparkSession is made.  In a virtual environment that is activated it
    changes nothing.
    """
    folder, name = os.path.split(sys.executable)
    os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
    os.environ |= {"PYSPARK_DRIVER_PYTHON": name, "PYSPARK_PYTHON": name}
