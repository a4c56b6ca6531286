"""``sharegroup serve``: what it takes from a server.properties, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.cli.main import main

STOP_SECONDS_MAX = 10.0


def test_properties_are_read_as_kafka_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three ways to part key and value, a long line, and options that win over the file."""
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


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("num.partitions: many", "num.partitions"),
        ("num.partition=3", "num.partition"),
    ],
)
def test_bad_property_is_a_misuse_that_names_it(
    line: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(line)
    with pytest.raises(SystemExit) as end:
        main(["serve", "--config", str(file), "--data", str(tmp_path / "data")])
    assert end.value.code == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
