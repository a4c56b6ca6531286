"""An environment in an archive, as docs/spark-clusters.md describes it, on executors of their own.

The archive is made of the packages that are installed here, with `sharegroup[arrow]` and nothing
else, so the test needs no package index.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
from packaging.requirements import Requirement

import pyspark_sharegroup
import sharegroup
from sharegroup.spark import ensure_java
from tests.integration.spark.conftest import CONFS, produce
from tests.integration.spark.test_local_cluster import JOB_SECONDS_MAX
from tests.support.chosen_broker import LONG_WITH_A_JVM

MASTER = "local-cluster[2,1,1024]"
RECORDS = 200
JOB = Path(__file__).parent / "packed_job.py"
ENVIRONMENT = "environment"
PYTHON = f"./{ENVIRONMENT}/bin/python"

pytestmark = LONG_WITH_A_JVM


def test_executors_read_with_the_python_of_the_archive(
    bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, *(b"%d" % number for number in range(RECORDS)))
    archive = packed(tmp_path / "packed")
    driver = tmp_path / "driver"
    shutil.unpack_archive(archive, driver / ENVIRONMENT, filter="fully_trusted")
    ensure_java()
    environment = os.environ | {"PYSPARK_PYTHON": PYTHON}
    for name in ("PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        environment.pop(name, None)
    confs = {**CONFS, "spark.executor.memory": "512m", "spark.local.dir": str(tmp_path / "local")}
    done = subprocess.run(
        [
            Path(pyspark.__file__).parent / "bin" / "spark-submit",
            *("--master", MASTER, "--archives", f"{archive}#{ENVIRONMENT}"),
            *(f"--conf={name}={value}" for name, value in confs.items()),
            *(JOB, bootstrap, topic, group, driver),
        ],
        cwd=driver,
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr[-20_000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["offsets"] == sorted([*range(RECORDS // 2)] * 2)
    assert len(answer["places"]) == 2, "one for each executor"
    for python, package in answer["places"]:
        assert python.endswith(f"/{ENVIRONMENT}/bin/python")
        assert f"/{ENVIRONMENT}/lib/" in package
        assert not python.startswith(str(tmp_path)), "not that of the driver"
    assert answer["workers"] == [PYTHON], "also the tasks that read"


def packed(folder: Path) -> Path:
    """An archive of an environment with what ``pip install '.[arrow]'`` installs."""
    environment = folder / ENVIRONMENT
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    for package in (sharegroup, pyspark_sharegroup):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, site / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    for distribution in needed("sharegroup", "arrow"):
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(distribution.locate_file(file)), site / file)
    archive = folder / f"{ENVIRONMENT}.tar.gz"  # Spark refuses links to outside in a ".tar".
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        for entry in environment.iterdir():
            tar.add(entry, entry.name)
    return archive


def needed(name: str, extra: str) -> Iterator[importlib.metadata.Distribution]:
    """The distributions that an extra of one needs, without itself."""
    seen: set[str] = set()
    wanted = [(name, frozenset({extra}))]
    while wanted:
        name, extras = wanted.pop()
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            marker = requirement.marker
            applies = marker is None or any(marker.evaluate({"extra": e}) for e in {"", *extras})
            if applies and requirement.name not in seen:
                seen.add(requirement.name)
                yield importlib.metadata.distribution(requirement.name)
                wanted.append((requirement.name, frozenset(requirement.extras)))
