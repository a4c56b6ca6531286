"""``sharegroup certs``: its files, and the settings that it prints, with a broker and a client."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.cli.main import main
from tests.support.limits import HANGING_SECONDS


def certs(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["certs", *words])
    assert ended.value.code == 0


def test_printed_settings_work_on_both_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certs(str(tmp_path / "certs"), "--client", "alice")
    server, client = capsys.readouterr().out.split("\n\n")
    (tmp_path / "server.properties").write_text(server.replace(":9093", ":0"))
    words = [sys.executable, "-m", "sharegroup", "serve"]
    words += ["--config", str(tmp_path / "server.properties"), "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as serve:
        try:
            assert serve.stdout is not None
            ready = re.match(r"ready bootstrap=(\S+) ", serve.stdout.readline())
            assert ready is not None
            properties = tmp_path / "client.properties"
            properties.write_text(client.replace("127.0.0.1:9093", ready[1]))
            with pytest.raises(SystemExit) as ended:
                main(["topics", "list", "--command-config", str(properties)])
            assert ended.value.code == 0
            properties.write_text(
                re.sub(r"ssl\.keystore.*\n?", "", client).replace("127.0.0.1:9093", ready[1])
            )
            with pytest.raises(SystemExit) as ended:
                main(["topics", "list", "--command-config", str(properties)])
            assert ended.value.code == 1
        finally:
            serve.terminate()
        assert serve.wait(HANGING_SECONDS) == 0
    assert "certificate required" in capsys.readouterr().err


def test_files_are_private_and_none_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "certs"
    certs(str(folder))
    made = {path: path.read_bytes() for path in folder.iterdir()}
    names = ["ca.key", "ca.pem", "client-client.pem", "server.pem"]
    assert sorted(path.name for path in made) == names
    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}
    for words in ([], ["--client", "client"], ["--host", "queue.local"]):
        with pytest.raises(SystemExit) as ended:
            main(["certs", str(folder), *words])
        assert ended.value.code == 1
        assert "exists; remove it first" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == made


def test_further_certificates_are_signed_by_the_same_authority(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    certs(str(folder))
    authority = (folder / "ca.pem").read_bytes()
    certs(str(folder), "--client", "bob", "--client", "carol")
    (folder / "server.pem").unlink()
    certs(str(folder), "--host", "queue.local", "--client", "dave")
    assert (folder / "ca.pem").read_bytes() == authority
    assert {"client-bob.pem", "client-carol.pem", "client-dave.pem", "server.pem"} <= {
        path.name for path in folder.iterdir()
    }


@pytest.mark.parametrize("name", ["../x", "", "a" * 65])
def test_name_that_is_no_file_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["certs", str(tmp_path / "certs"), "--client", name])
    assert ended.value.code == 2
    assert "expected 1 to 64 characters" in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()
