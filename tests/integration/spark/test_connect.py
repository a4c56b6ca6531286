"""Spark Connect and Declarative Pipelines: a client and a server, which are separate processes.

Both tests are in this file, because such a server always listens on the same port: the tests of
one file never run at the same time.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sharegroup.testing.embedded import TestBroker
from tests.support.chosen_broker import LONG_WITH_A_JVM

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
JOB_SECONDS_MAX = 240
MISSING = [
    name
    for name in ("grpc", "grpc_status", "pandas", "yaml", "zstandard")
    if find_spec(name) is None
]

pytestmark = [
    LONG_WITH_A_JVM,
    pytest.mark.skipif(bool(MISSING), reason=f"Spark Connect needs {', '.join(MISSING)}"),
]


def run(folder: Path, output: Path, *command: str | Path) -> str:
    """Run a program, which starts a server that may outlive it: so its output is no pipe."""
    with open(output, "w+") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(JOB_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end in {JOB_SECONDS_MAX} s: {output.read_text()}") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    printed = output.read_text()
    assert code == 0, printed
    return printed


def test_query_of_a_connect_client(sharegroup_broker: TestBroker, tmp_path: Path) -> None:
    """Source, sink, outcomes, a transaction that is written twice, and the listener."""
    broker = sharegroup_broker
    broker.configure_group("connect", {"share.auto.offset.reset": "earliest"})
    broker.create_topic("orders.copy")
    broker.produce("orders", "good", "bad", "better")
    job = (sys.executable, "-m", "tests.integration.spark.connect_job")
    printed = run(ROOT, tmp_path / "output", *job, broker.bootstrap_servers, tmp_path)
    (told,) = [line for line in printed.splitlines() if line.startswith('{"rows"')]
    assert json.loads(told) == {"rows": ["better", "good"], "held": [3]}
    assert [record.value for record in broker.records("orders.bad")] == [b"bad"]
    copied = sorted(record.value for record in broker.records("orders.copy"))
    assert copied == [b"bad", b"better", b"good"]
    broker.wait_until(group="connect", topic="orders", lag=0)


def test_declarative_pipeline(sharegroup_broker: TestBroker, tmp_path: Path) -> None:
    """The pipeline under ``examples/spark/declarative``."""
    broker = sharegroup_broker
    broker.configure_group("declared", {"share.auto.offset.reset": "earliest"})
    folder = tmp_path / "pipeline"
    shutil.copytree(ROOT / "examples" / "spark" / "declarative", folder)
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text().replace("127.0.0.1:9092\n", f"{broker.bootstrap_servers}\n", -1)
    spec.write_text(text.replace("/tmp/orders-pipeline", str(tmp_path / "storage")))

    orders = [{"id": number, "item": "pear", "total": number} for number in (2, 3)]
    broker.produce("orders", *map(json.dumps, orders))
    run(folder, tmp_path / "output", BIN / "spark-pipelines", "run", "--spec", spec)
    warehouse = folder / "spark-warehouse"
    assert sorted(pq.read_table(warehouse / "orders")["id"].to_pylist()) == [2, 3]
    assert pq.read_table(warehouse / "totals").to_pylist() == [{"item": "pear", "total": 5.0}]
    broker.wait_until(group="declared", topic="orders", lag=0)
