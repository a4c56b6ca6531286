"""``sharegroup users``, with a running broker and with the data directory of a stopped one."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from sharegroup.cli.main import main
from sharegroup.errors import SaslAuthenticationFailed
from sharegroup.testing import run_broker
from tests.integration.broker.sasl_scene import OPEN, address_of, client_options, settings
from tests.integration.broker.test_sasl_clients import topics
from tests.integration.cli.conftest import Printed
from tests.integration.cli.terminal import terminal

Users = Callable[..., Printed]


@pytest.fixture
def users(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Users:
    """Run ``sharegroup users WORDS...``; ``typed`` is the standard input."""

    def run(words: str, *more: str, typed: str = "") -> Printed:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        with pytest.raises(SystemExit) as end:
            main(["users", *words.split(), *more])
        printed = capsys.readouterr()
        return Printed(int(end.value.code or 0), printed.out, printed.err)

    return run


def test_users_of_a_running_broker(users: Users, tmp_path: Path) -> None:
    values = settings(tmp_path, connection_failed_authentication_delay_ms="0")
    with run_broker(values) as running:
        server = f"--bootstrap-server {address_of(running, OPEN)}"
        assert users(f"list {server}").out == "There are no users.\n"
        file = tmp_path / "password"
        file.write_text("first one\n")
        added = users(f"add alice {server} --password-file {file}")
        assert (added.code, added.out) == (0, "set the password of alice\n")
        options = client_options(running, "SCRAM-SHA-512", sasl_plain_password="first one")
        assert topics(options) == []
        both = "--mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512 --iterations 8192"
        assert users(f"add alice {both} {server}", typed="second one\n").code == 0
        with pytest.raises(SaslAuthenticationFailed):
            topics(options)
        assert topics({**options, "sasl_plain_password": "second one"}) == []
        assert users(f"list {server}").lines == [
            ["USER", "MECHANISM", "ITERATIONS"],
            ["alice", "SCRAM-SHA-256", "8192"],
            ["alice", "SCRAM-SHA-512", "8192"],
        ]
        assert users(f"remove alice --mechanism SCRAM-SHA-256 {server}").code == 0
        assert users(f"list alice --json {server}").rows == [
            {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192}
        ]
        assert users(f"remove alice {server}").out == "removed alice\n"
        missing = users(f"remove alice {server}")
        assert missing.code == 1
        assert missing.err.startswith("Error: ResourceNotFound: ")


def test_first_user_of_a_new_data_directory(users: Users, tmp_path: Path) -> None:
    """An operator prepares a directory, starts the broker, stops it and removes the user."""
    data = tmp_path / "data"
    assert users(f"add alice --data {data}", typed="opensesame\n").code == 0
    assert users(f"list --data {data} --json").rows == [
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096}
    ]
    values = settings(tmp_path, connection_failed_authentication_delay_ms="0")
    with run_broker(values, data=str(data)) as running:
        options = client_options(running, "SCRAM-SHA-512", sasl_plain_password="opensesame")
        assert topics(options) == []
        refused = users(f"add bob --data {data}", typed="x\n")
        assert refused.code == 1
        assert "stop the broker, or leave out --data" in refused.err
        running.stop()
        assert users(f"add bob --data {data}", typed="hunter2\n").code == 0
        assert users(f"remove alice --data {data}").code == 0
        running.start()
        with pytest.raises(SaslAuthenticationFailed):
            topics(options)
        bob = {"sasl_plain_username": "bob", "sasl_plain_password": "hunter2"}
        assert topics({**options, **bob}) == []


def test_a_crashed_directory_stays_marked_as_crashed(users: Users, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with run_broker(settings(tmp_path), data=str(data)) as running:
        running.create_topic("orders")
        running.produce("orders", "one apple")
        running.kill()
        assert users(f"add alice --data {data}", typed="x\n").code == 0
        assert not (data / ".kafka_cleanshutdown").exists()
        running.start()
        assert [record.value for record in running.records("orders")] == [b"one apple"]
        running.stop()
        assert (data / ".kafka_cleanshutdown").exists()
        assert users(f"add alice --data {data}", typed="y\n").code == 0
        assert (data / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("words", "typed", "code", "text"),
    [
        ("add alice", "", 1, "1 to 1024 characters in the first line of standard input"),
        ("add alice", "\nsecond line", 1, "found 0"),
        ("add alice --iterations 4095", "x", 2, "4095"),
        ("add alice --mechanism PLAIN", "x", 2, "PLAIN"),
        ("remove alice", "", 1, "there is no user 'alice'"),
        ("list alice", "", 1, "there is no user 'alice'"),
    ],
)
def test_misuse_is_told(
    users: Users, tmp_path: Path, words: str, typed: str, code: int, text: str
) -> None:
    printed = users(f"{words} --data {tmp_path}", typed=typed)
    assert printed.code == code
    assert text in printed.err


@pytest.mark.parametrize(
    "change",
    [
        "--add-config SCRAM-SHA-256=[iterations=8192,password=sesame]",
        "--delete-config SCRAM-SHA-256",
    ],
)
def test_kafkas_flags_for_passwords_lead_to_this_verb(
    capsys: pytest.CaptureFixture[str], change: str
) -> None:
    words = f"configs --alter --entity-type users --entity-name alice {change}"
    with pytest.raises(SystemExit) as end:
        main(words.split())
    printed = capsys.readouterr()
    assert end.value.code == 2
    assert "use sharegroup users add NAME" in printed.err
    assert "sesame" not in printed.out + printed.err


def test_a_missing_directory_is_not_made_by_mistake(users: Users, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for words in ("list", "remove alice"):
        assert "there is no directory" in users(f"{words} --data {missing}").err
    assert not missing.exists()


def test_a_terminal_asks_twice_and_shows_no_password(tmp_path: Path) -> None:
    with terminal("users", "add", "alice", "--data", str(tmp_path / "data")) as screen:
        screen.expect("Password of alice")
        screen.type(b"opensesame\r")
        screen.expect("Repeat for confirmation")
        screen.type(b"opensesame\r")
        screen.expect("set the password of alice")
        assert screen.end()[0] == 0
        assert "opensesame" not in screen.text
