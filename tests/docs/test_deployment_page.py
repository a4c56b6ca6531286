"""docs/deployment.md and docs/monitoring.md: units, rules, and a broker that may write one folder.

No unit is booted.  systemd-analyze and promtool are Debian's (``systemd``, ``prometheus``), and the
read-only root needs a root user, who may make a mount namespace.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from sharegroup.cli.worker.worker import command
from sharegroup.worker import App
from tests.support.limits import HANGING_SECONDS

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "examples" / "systemd").glob("*.service"))
RULES = ROOT / "docs" / "grafana" / "alerts.yml"
SYSTEM_PYTHON = Path(f"/usr/bin/python3.{sys.version_info.minor}")
USER = 54321
"""The id of no user of any machine."""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs Debian's systemd")
@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    """The programs that it starts must exist, so they are replaced by one that does."""
    text = unit.read_text().replace("/opt/sharegroup/bin/sharegroup", "/bin/true")
    instance = tmp_path / unit.name.replace("@", "@1")
    instance.write_text(text.replace("/opt/orders", "/tmp"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(instance)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_page_makes_the_folders_and_files_that_the_units_need() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    units = "".join(unit.read_text() for unit in UNITS)
    assert "--config ${CONFIGURATION_DIRECTORY}/server.properties" in units
    assert "ConfigurationDirectory=sharegroup\n" in units
    assert "touch /etc/sharegroup/server.properties" in page
    (folder,) = set(re.findall(r"^WorkingDirectory=(.+)$", units, re.MULTILINE))
    (module,) = set(re.findall(r"sharegroup worker (\w+):app\b", units))
    assert f"mkdir --parents /etc/sharegroup {folder}\n" in page
    assert f"cp {module}.py {folder} " in page


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_unit_is_read_by_the_parser_of_ini_files(unit: Path) -> None:
    """Where there is no systemd, this finds at least broken lines and options given twice."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(unit.read_text())
    assert parser.sections() == ["Unit", "Service", "Install"]
    assert parser["Service"]["ExecStart"].startswith("/opt/sharegroup/bin/sharegroup ")


def test_units_give_workers_longer_than_their_grace() -> None:
    workers = [unit.read_text() for unit in UNITS if "worker" in unit.name]
    assert len(workers) == 2
    for worker in workers:
        seconds = int(re.findall(r"^TimeoutStopSec=(\d+)$", worker, re.MULTILINE)[0])
        assert seconds > App("a").grace_seconds


@pytest.mark.parametrize("unit", [unit for unit in UNITS if "worker" in unit.name], ids=str)
def test_options_of_the_units_exist(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=\S+ worker (.+)$", unit.read_text(), re.MULTILINE)
    run = command.commands["run"]
    with run.make_context("run", line.split()) as context:
        assert context.params["app_name"] == "orders:app"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's prometheus")
def test_prometheus_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_use_metrics_that_exist() -> None:
    documented = (ROOT / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"\b(?:sharegroup|kafka)_\w+", RULES.read_text()))
    assert len(named) > 5
    assert {name for name in named if f"`{name}`" not in documented} == set()


def why_not_restricted() -> str | None:
    """Why no process with a read-only root and another user can be started here, or None."""
    if os.geteuid() != 0:
        return "only root can make a mount namespace"
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return "needs util-linux"
    if not SYSTEM_PYTHON.exists():
        return f"needs {SYSTEM_PYTHON}, which every user can run"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
    return None if done.returncode == 0 else "mount namespaces are not allowed here"


RESTRICTED = f"""
set -eu
mount --bind / /
mount -o remount,bind,ro /
for folder in /tmp /var/tmp; do
    mount --bind "$folder" "$folder"
    mount -o remount,bind,ro "$folder"
done
mount -t tmpfs none /mnt
chown {USER} /mnt
exec setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs --inh-caps=-all \\
    "$1" -c "$2"
"""

PROGRAM = """
import os, re, subprocess, sys
folder = "/mnt"
for place in ("/", "/tmp", "/var/tmp", os.path.expanduser("~")):
    assert not os.access(place, os.W_OK), place
words = [sys.executable, "-m", "sharegroup"]
for start in (1, 2):
    serve = subprocess.Popen(
        [*words, "serve", "--data", folder + "/data", "--port", "0"], stdout=subprocess.PIPE
    )
    address = ["--bootstrap-server", re.search(rb"bootstrap=(\\S+)", serve.stdout.readline())[1]]
    if start == 1:
        subprocess.run([*words, "produce", "orders", *address], input=b"one", check=True)
    else:
        subprocess.run([*words, "tail", "orders", *address], check=True)
    serve.terminate()
    assert serve.wait() == 0
print(os.getuid())
"""


@pytest.mark.slow
@pytest.mark.skipif(why_not_restricted() is not None, reason=why_not_restricted() or "")
def test_broker_needs_nothing_but_its_data_directory() -> None:
    """The root is read-only, the user has no name and no home, and there is no /tmp."""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", RESTRICTED, "sh", SYSTEM_PYTHON, PROGRAM],
        env={
            "PATH": os.defpath,
            "PYTHONPATH": f"{ROOT / 'src'}:{sysconfig.get_path('purelib')}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=HANGING_SECONDS,
        cwd="/",
    )
    assert done.stdout == f"one\n{USER}\n", done.stderr[-3000:]
