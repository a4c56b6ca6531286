"""``sharegroup serve``: what it takes from a server.properties, and what it refuses."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.cli.main import main
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess

STOP_SECONDS_MAX = HANGING_SECONDS
NO_CLUSTER = ["dlq", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"]


def test_properties_are_parsed_like_kafka(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three separators, a continued line, and options that override the file."""
    file = tmp_path / "server.properties"
    file.write_text(
        "# of a Kafka that was here before\n"
        "num.partitions: 3\n"
        "listeners = \\\n    PLAINTEXT://127.0.0.1:1\n"
        f"log.dirs {tmp_path}/elsewhere\n"
        "group.share.record.lock.duration.ms=15000\n"
    )
    words = [sys.executable, "-m", "sharegroup", "serve", "--config", str(file)]
    words += ["--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as serve:
        assert serve.stdout is not None
        ready = re.match(r"ready bootstrap=(\S+) cluster=\S+ data=(.*)", serve.stdout.readline())
        try:
            assert ready is not None
            with pytest.raises(SystemExit):
                main(["configs", "describe", "--broker", "1", "--json", "--bootstrap", ready[1]])
        finally:
            serve.terminate()
        assert serve.wait(STOP_SECONDS_MAX) == 0
    assert ready[2] == str(tmp_path / "data")
    values = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert values["num.partitions"] == "3"
    assert values["group.share.record.lock.duration.ms"] == "15000"


@pytest.mark.parametrize("verb", [["serve", "--port", "0", "--data", "data"], NO_CLUSTER])
def test_program_loads_neither_hypothesis_nor_the_client_of_aiokafka(verb: list[str]) -> None:
    """Both take most of the start's time; see ``cli.common.light_imports``."""
    program = (
        "import sys\n"
        f"sys.argv = ['sharegroup', *{verb!r}]\n"
        "import sharegroup.cli.broker.serve as serve\n"
        "from sharegroup.cli.main import main\n"
        "serve._run = lambda values, **options: __import__('sharegroup.broker.app')\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert 'kio.static.primitive' in sys.modules\n"
        "heavy = ('hypothesis', 'aiokafka.consumer', 'importlib.metadata')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert done.stdout == "[]\n"


def test_libraries_that_were_imported_before_the_program_stay_whole() -> None:
    """As by the ``sitecustomize`` of a tool that instruments libraries."""
    program = (
        "import sys, aiokafka, crc32c, hypothesis\n"
        "from sharegroup.cli.main import main\n"
        f"sys.argv = ['sharegroup', *{NO_CLUSTER!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 1\n"
        "assert aiokafka is sys.modules['aiokafka'] and aiokafka.AIOKafkaConsumer\n"
        "assert hypothesis is sys.modules['hypothesis'] and crc32c.crc32c(b'123456789')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", [["serve", "--config", "FILE"], NO_CLUSTER])
def test_call_inside_a_users_process_imports_nothing_lightly(
    verb: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions: many")
    verb = [word.replace("FILE", str(file)) for word in verb]
    program = (
        "import sys\n"
        "from sharegroup.cli.main import main\n"
        f"try:\n    main({verb!r})\nexcept SystemExit:\n    pass\n"
        "from aiokafka.consumer import AIOKafkaConsumer\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("num.partitions: many", "num.partitions"),
        ("num.partition=3", "num.partition"),
    ],
)
def test_invalid_property_is_a_misuse_with_its_name(
    line: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(line)
    with pytest.raises(SystemExit) as end:
        main(["serve", "--config", str(file), "--data", str(tmp_path / "data")])
    assert end.value.code == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def refusal(*words: str) -> str:
    """What `serve` prints instead of starting, without the lines of its log."""
    done = subprocess.run(
        [sys.executable, "-m", "sharegroup", "serve", *words, "--log-level", "error"],
        capture_output=True,
        text=True,
        timeout=HANGING_SECONDS,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def test_port_in_use_is_named_with_advice(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        advice = (
            f"Error: 127.0.0.1:{port} is in use by another process, perhaps by another broker: "
            "stop that process, or choose another port with --port or --metrics-port (0: a free "
            "port)\n"
        )
        data = ("--data", str(tmp_path))
        assert refusal("--port", port, *data) == advice
        assert refusal("--port", "0", "--metrics-port", port, *data) == advice


def test_locked_data_directory_is_named_with_its_process(tmp_path: Path) -> None:
    with ServeProcess(tmp_path) as running:
        assert refusal("--port", "0", "--data", str(tmp_path)) == (
            f"Error: the data directory {tmp_path} is in use by process {running.pid}: stop that "
            "broker, or choose another data directory with --data\n"
        )


def test_impossible_data_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = refusal("--port", "0", "--data", str(tmp_path / "file/data"))
    assert error.startswith(f"Error: {tmp_path}/file/data: Not a directory; choose another")


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("192.0.2.1", "Error: 192.0.2.1:19092 is not an address of this machine; check --host\n"),
        ("no.such.host.invalid", "Error: the address to listen on is not known: "),
    ],
)
def test_impossible_address_is_named(tmp_path: Path, host: str, problem: str) -> None:
    words = ("--insecure", "--host", host, "--port", "19092", "--data", str(tmp_path))
    assert refusal(*words).startswith(problem)
