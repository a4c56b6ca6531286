"""What an import or a command loads: nothing that it does not need, in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

CODEC = "aiokafka.record.default_records"


def test_administration_loads_neither_consumer_nor_record_codec() -> None:
    program = "import sys, sharegroup.client.admin.admin_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    loaded = set(done.stdout.decode().split())
    assert "sharegroup.client.net.cluster" in loaded
    absent = {"sharegroup.client.share.share_consumer", "sharegroup.client.produce.producer", CODEC}
    assert not loaded & absent


def test_importing_the_table_loads_no_schema():
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, sharegroup.wire.apis; print([m for m in sys.modules if 'kio.sch' in m])",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert loaded.strip() == "[]"


def test_declaring_loads_no_client_and_no_library() -> None:
    """Who only declares or sends type-checked payloads of bytes waits for nothing else."""
    program = (
        "import sys; from sharegroup.worker import App, Retry, DeadLetter, Reject, Record\n"
        "app = App('a')\n"
        "@app.share_group('g', topics='t')\n"
        "async def f(value: bytes, record: Record) -> None: ...\n"
        "heavy = {'sharegroup.client', 'kio', 'msgspec', 'pydantic', 'confluent_kafka'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"


HEAVY = ("asyncio", "kio", "aiokafka", "rich", "sharegroup.client", "sharegroup.broker")


def test_help_loads_nothing_that_takes_time() -> None:
    """What keeps `sharegroup --help` under 0.4 s, on every machine alike."""
    program = (
        "import sys\n"
        "from sharegroup.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == "[]\n"


BROKER_START = """
import sys
import sharegroup.broker.app
print(*[name for name in sys.modules if name.startswith("sharegroup.broker.handlers.")])
print(*[name for name in sys.modules if name == "sharegroup.broker.message_versions"])
"""


def test_start_of_a_broker_imports_no_handler_and_not_all_versions_of_messages() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKER_START],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


EMBEDDED = """
import importlib, sys
for package in ("client", "testing", "worker"):
    module = importlib.import_module(f"sharegroup.{package}")
    for name in module.__all__:
        getattr(module, name)
from sharegroup.testing import run_broker
with run_broker():
    print([name for name in ("click", "pygments", "rich") if name in sys.modules])
"""


def test_an_embedded_broker_and_the_clients_load_no_library_of_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-c", EMBEDDED], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"[]\n"
