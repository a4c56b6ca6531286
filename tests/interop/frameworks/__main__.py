"""Installs frameworks in environments of their own, under build/frameworks, and runs their tests.

``python -m tests.interop.frameworks`` (``make frameworks``); ``--latest`` installs the latest
releases instead of those of docs/frameworks.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

from tests.interop.frameworks.environments import ENVIRONMENTS, FOLDER, ROOT, Environment

BUILD = ROOT / "build" / "frameworks"
EXAMPLES = ROOT / "examples" / "testing"


def install(environment: Environment, *, latest: bool) -> Path:
    """Install an environment unless it is there; returns its Python."""
    folder = BUILD / environment.name
    python = folder / "bin" / "python"
    requirements = environment.requirements(latest=latest)
    marker = folder / "installed.txt"
    wanted = "\n".join(requirements)
    if not latest and marker.exists() and marker.read_text() == wanted:
        return python
    print(f"installing {', '.join(requirements)} in {folder.relative_to(ROOT)}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    project = ["--editable", f"{ROOT}[registry]", "pytest>=9"]
    subprocess.run([*command, *requirements, *project], check=True)
    marker.write_text(wanted)
    return python


def run(environment: Environment, python: Path, others: list[str]) -> int:
    """Run the tests and the examples of an environment; returns an exit code of pytest."""
    common = [str(python), "-m", "pytest", "-q", "-W", "ignore", *others]
    # The warnings of the frameworks are not ours, and the conftest.py files above need more
    # libraries than are installed here.
    options = ["-o", "filterwarnings=", f"--confcutdir={FOLDER}"]
    files = [str((FOLDER / name).relative_to(ROOT)) for name in environment.tests]
    tests = subprocess.run([*common, *options, *files], cwd=ROOT, check=False)
    if not environment.examples:
        return tests.returncode
    # As a reader runs them, without our settings of pytest.
    options = ["-c", os.devnull, "--rootdir", str(EXAMPLES), "-p", "no:cacheprovider"]
    files = [str(EXAMPLES / name) for name in environment.examples]
    examples = subprocess.run([*common, *options, *files], check=False)
    return tests.returncode or examples.returncode


def main() -> int:
    """Run all environments; returns 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.interop.frameworks")
    parser.add_argument("--latest", action="store_true", help="install the latest releases")
    parser.add_argument("--only", choices=[environment.name for environment in ENVIRONMENTS])
    arguments, others = parser.parse_known_args()
    codes = [
        run(environment, install(environment, latest=arguments.latest), others)
        for environment in ENVIRONMENTS
        if arguments.only in (None, environment.name)
    ]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
