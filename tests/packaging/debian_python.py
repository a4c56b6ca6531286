"""A newer Python from Debian's packages, for machines that have none: in ``build/debian``.

`make pythons` uses it.  It needs root, and the packages ``debootstrap`` and ``patchelf``; it takes
two minutes and 300 MB, once.  The Python keeps its own C library: its program is told where that
is, so it runs beside the machine's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.packaging.environments import BUILD

FOLDER = BUILD / "debian"
SUITE = "sid"
MIRROR = "http://deb.debian.org/debian"
WHEELS = "/usr/share/python-wheels"
NEEDS = ("debootstrap", "patchelf")


def why_not() -> str | None:
    """Return why this machine cannot have it, or None."""
    if os.geteuid() != 0:
        return "only root can run debootstrap"
    missing = [name for name in NEEDS if shutil.which(name) is None]
    return f"apt-get install {' '.join(missing)}" if missing else None


def debian_python(minor: str) -> Path | None:
    """Return the folder with a Python of this version, and make it if it is not there."""
    program = FOLDER / "usr" / "bin" / f"python{minor}"
    if program.exists():
        return program.parent
    if why_not() is not None:
        return None
    shutil.rmtree(FOLDER, ignore_errors=True)
    packages = f"python{minor},python{minor}-venv,ca-certificates"
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", SUITE]
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "debootstrap.log").open("wb") as log:
        done = subprocess.run([*command, str(FOLDER), MIRROR], stdout=log, stderr=log)
    if done.returncode != 0:
        shutil.rmtree(FOLDER, ignore_errors=True)
        return None
    _move(program, minor)
    return program.parent


def _move(program: Path, minor: str) -> None:
    """Make the program run from where it is, and find the wheels of its pip there."""
    (loader,) = (FOLDER / "lib64").glob("ld-linux-*.so.*")
    (libraries,) = (FOLDER / "usr" / "lib").glob("*-linux-gnu")
    where = ["--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries]
    subprocess.run(["patchelf", *where, program], check=True)
    for path in (FOLDER / "usr" / "lib" / f"python{minor}").glob("_sysconfig*"):
        if not path.is_symlink():
            path.write_text(path.read_text().replace(WHEELS, f"{FOLDER}{WHEELS}"))
