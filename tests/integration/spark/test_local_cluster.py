"""Executors that are processes of their own, as on a cluster: nothing is shared but the options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.spark.conftest import produce
from tests.support.chosen_broker import LONG_WITH_A_JVM

JOB_SECONDS_MAX = 240
"""Three virtual machines start, which takes a busy machine a while; a quiet one 20 seconds."""
ROOT = Path(__file__).resolve().parents[3]


@LONG_WITH_A_JVM
def test_a_local_cluster_reads_each_record_once(
    bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, *(b"%d" % number for number in range(200)))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.integration.spark.cluster_job",
            bootstrap,
            topic,
            group,
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    expected = sorted([partition, offset] for partition in (0, 1) for offset in range(100))
    assert answer == {"rows": expected, "executors": 2}
