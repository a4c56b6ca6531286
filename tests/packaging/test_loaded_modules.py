"""What an import or a command loads: nothing that it does not need, in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

from tests.support.limits import HANGING_SECONDS

CODEC = "aiokafka.record.default_records"


def test_administration_loads_neither_consumer_nor_record_codec() -> None:
    program = "import sys, sharegroup.client.admin.admin_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    loaded = set(done.stdout.decode().split())
    assert "sharegroup.client.net.cluster" in loaded
    absent = {
        "sharegroup.client.share.consumer.share_consumer",
        "sharegroup.client.produce.producer",
        CODEC,
    }
    assert not loaded & absent


def test_importing_the_table_loads_no_schema():
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, sharegroup.wire.codec.apis as _\nprint('kio.schema' in str(sys.modules))",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert loaded.strip() == "False"


def test_declaring_loads_no_client_and_no_library() -> None:
    """Who only declares or sends type-checked payloads of bytes waits for nothing else."""
    program = (
        "import sys; from sharegroup.worker import App, Retry, DeadLetter, Reject, Record\n"
        "app = App('a')\n"
        "@app.share_group('g', topics='t')\n"
        "async def f(value: bytes, record: Record) -> None: ...\n"
        "heavy = {'sharegroup.client', 'kio', 'msgspec', 'pydantic', 'confluent_kafka'}\n"
        "heavy |= {'http.client', 'email'}  # 9 ms\n"
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
        timeout=HANGING_SECONDS,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


STARTED = """
import asyncio, sys, tempfile
from sharegroup.broker.app import start
from sharegroup.broker.configuration.config import Config

async def main():
    with tempfile.TemporaryDirectory() as folder:
        config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder}
        running = await start(Config.parse(config))
        print(*sys.modules)
        await running.stop()

asyncio.run(main())
"""

NOT_AT_START = (
    *(
        "aiokafka",
        "kio.schema.sasl",
        "sharegroup.broker.handlers",
        "sharegroup.broker.server.handler_table",
    ),
    *(
        "sharegroup.broker.tls.transport",
        "sharegroup.broker.tls.context",
        "sharegroup.broker.sasl",
    ),
    *("sharegroup.broker.access.mechanisms", "sharegroup.broker.access.authorizer"),
    *("sharegroup.broker.share_parts", "sharegroup.broker.share.dead_letters"),
    *("sharegroup.broker.groups.share_group_coordinator", "sharegroup.broker.server.warm_up"),
    *("sharegroup.core.share_partition", "sharegroup.core.groups.share.share_group"),
    *(
        "sharegroup.core.security.scram",
        "sharegroup.core.client_telemetry",
        "sharegroup.core.patterns",
    ),
    *("sharegroup.storage.log.compaction", "sharegroup.storage.recovery.recovery"),
    *(
        "sharegroup.wire.batches.records",
        "sharegroup.wire.batches.record_walk",
        "sharegroup.wire.otlp_metrics",
    ),
)


def test_a_start_on_an_empty_directory_imports_only_what_it_needs() -> None:
    """Half of a start is the imports of our own modules; each of these was one of them once."""
    done = subprocess.run(
        [sys.executable, "-c", STARTED], stdout=subprocess.PIPE, check=True, timeout=300
    )
    loaded = done.stdout.decode().split()
    assert not [name for name in loaded if name.startswith(NOT_AT_START)]
    assert len([name for name in loaded if name.startswith("sharegroup.")]) <= 170


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
