"""``sharegroup console`` as a process: where it listens, and how users log in there."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from sharegroup.cli.access.local_certificates import make_certificates
from sharegroup.testing import Security, run_broker
from tests.support.limits import HANGING_SECONDS

TOKEN = "0123456789abcdef0123"
CONSOLE = [sys.executable, "-m", "sharegroup", "console", "--port", "0", "--history", "none"]


@contextmanager
def console(log: Path, *words: str) -> Iterator[str]:
    """Run a console; yield its address."""
    with (
        log.open("w") as lines,
        subprocess.Popen(
            [*CONSOLE, *words], stdout=subprocess.PIPE, stderr=lines, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            ready = re.match(r"ready console=(\S+)", process.stdout.readline())
            assert ready is not None, log.read_text()
            yield ready[1]
        finally:
            process.terminate()
        assert process.wait(HANGING_SECONDS) == 0


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    path = tmp_path / "tokens"
    path.write_text(f"ada:{TOKEN}\n")
    return str(path)


def refused(*words: str) -> str:
    done = subprocess.run(
        [*CONSOLE, *words], capture_output=True, text=True, timeout=HANGING_SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    return " ".join(done.stderr.split())


@pytest.mark.slow
def test_console_that_others_could_reach_needs_encryption_and_a_login(
    tmp_path: Path, tokens: str
) -> None:
    make_certificates(tmp_path, hosts=("127.0.0.1",), clients=())
    assert "give --tls-cert and --tls-key" in refused("--host", "0.0.0.0", "--token-file", tokens)
    assert "give --token-file FILE or --cluster-login" in refused(
        "--host", "0.0.0.0", "--tls-cert", str(tmp_path / "server.pem")
    )
    assert "give --token-file FILE" in refused("--behind-proxy", "127.0.0.1")
    assert "expected an address or a network" in refused("--behind-proxy", "everybody")
    assert "security.protocol=SASL_SSL" in refused("--cluster-login", "PLAIN")
    roles = tmp_path / "roles.toml"
    roles.write_text("[[grants]]\nrole = 'root'\n")
    assert "grants 1.role = 'root'" in refused("--roles", str(roles))
    roles.write_text("")
    assert "expected 1 to 1000 lines name:token" in refused("--token-file", str(roles))


def test_login_by_https(tmp_path: Path, tokens: str) -> None:
    make_certificates(tmp_path, hosts=("127.0.0.1",), clients=())
    log = tmp_path / "log"
    with (
        run_broker() as broker,
        console(
            log,
            *("--bootstrap-server", broker.bootstrap_servers, "--token-file", tokens),
            *("--tls-cert", str(tmp_path / "server.pem"), "--name", "console.example"),
        ) as address,
    ):
        assert address.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with httpx.Client(base_url=address, verify=trusted) as browser:
            assert browser.get("/").status_code == 303
            wrong = browser.post("/login", data={"token": TOKEN + "x"})
            assert wrong.status_code == 401
            done = browser.post("/login", data={"token": TOKEN})
            assert done.status_code == 303
            assert "; secure" in done.headers["set-cookie"].lower()
            assert browser.get("/").status_code == 200
            foreign = {"origin": "https://example.com"}
            assert browser.post("/login", data={"token": TOKEN}, headers=foreign).status_code == 403
            hosts = {"console.example": 200, "example.com": 403}
            found = {host: browser.get("/", headers={"host": host}).status_code for host in hosts}
            assert found == hosts
    text = log.read_text()
    assert "event=console.login user='ada' address='127.0.0.1' outcome=done" in text
    assert TOKEN not in text


@pytest.mark.slow
def test_proxy_is_believed_and_nobody_else(tmp_path: Path, tokens: str) -> None:
    with run_broker() as broker:
        words = ("--bootstrap-server", broker.bootstrap_servers, "--token-file", tokens)
        through = {"x-forwarded-proto": "https", "x-forwarded-for": "10.9.9.9, 10.8.8.8"}
        with (
            console(tmp_path / "log", *words, "--behind-proxy", "127.0.0.1") as address,
            httpx.Client(base_url=address) as browser,
        ):
            assert browser.get("/login").status_code == 403
            assert browser.get("/login", headers=through).status_code == 200
            done = browser.post("/login", data={"token": TOKEN}, headers=through)
            assert "__Host-" in done.headers["set-cookie"]
        assert "address='10.8.8.8' outcome=done" in (tmp_path / "log").read_text()
        with (
            console(tmp_path / "log", *words, "--behind-proxy", "10.0.0.0/8") as address,
            httpx.Client(base_url=address) as browser,
        ):
            assert browser.get("/login", headers=through).status_code == 403


def test_login_with_credentials_of_the_cluster(tmp_path: Path) -> None:
    security = Security(users={"console": "its-secret", "ada": "her-secret"})
    with run_broker(security=security) as broker:
        properties = tmp_path / "client.properties"
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="console" password="its-secret";\n'
        )
        words = ("--bootstrap-server", broker.bootstrap_servers, "--command-config")
        log = tmp_path / "log"
        with (
            console(log, *words, str(properties), "--cluster-login", "SCRAM-SHA-256") as address,
            httpx.Client(base_url=address) as browser,
        ):
            assert browser.get("/").status_code == 303
            fields = {"name": "ada", "password": "her-secret"}
            assert browser.post("/login", data=fields).status_code == 303
            assert "User:ada" in browser.get("/").text
        assert "her-secret" not in log.read_text()


@pytest.mark.slow
def test_files_of_tokens_and_roles_are_read_again(tmp_path: Path, tokens: str) -> None:
    roles, log = tmp_path / "roles.toml", tmp_path / "log"
    roles.write_text("[[grants]]\n")
    with (
        run_broker() as broker,
        console(
            log,
            *("--bootstrap-server", broker.bootstrap_servers),
            *("--token-file", tokens, "--roles", str(roles)),
        ) as address,
        httpx.Client(base_url=address) as program,
    ):
        token = {"authorization": f"Bearer {TOKEN}"}
        assert program.get("/api/v1/topics", headers=token).status_code == 200
        roles.write_text("[[grants]\n")
        Path(tokens).write_text("eve:0123456789abcdef0124\n")
        end = time.monotonic() + HANGING_SECONDS
        while program.get("/api/v1/topics", headers=token).status_code != 401:
            assert time.monotonic() < end
        while not re.search("event=console.rules_kept reason=.the file of roles", log.read_text()):
            assert time.monotonic() < end
