"""``sharegroup worker``: which application is meant, and what is said of wrong ones."""

from __future__ import annotations

import string
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sharegroup.cli.main import main
from sharegroup.cli.worker.worker import Length
from sharegroup.cli.worker.worker_app import ImportFailed, Overrides, load, source_folder
from sharegroup.worker import App

APP = """
from sharegroup.worker import App

app = App("orders-service")

@app.share_group("{group}", topics="{group}.orders")
async def work(order: bytes) -> None: ...
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that a command is given in; what it imports is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if name.partition(".")[0] in ("orders", "other", "broken"):
            del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_an_application_is_found_from_the_current_folder(project: Path) -> None:
    write(project, "orders/__init__.py", "")
    write(project, "orders/app.py", APP.format(group="billing"))
    app = load("orders.app:app")
    assert isinstance(app, App)
    assert app.name == "orders-service"
    assert load("orders.app") is app
    assert source_folder("orders.app:app") == project / "orders"


def test_an_application_inside_of_something_is_found(project: Path) -> None:
    write(project, "orders.py", APP.format(group="billing") + "class x:\n    inner = app\n")
    assert load("orders:x.inner").name == "orders-service"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("orders:apps", "orders has no 'apps'; there is orders:app"),
        ("orders:work", "orders:work is of type Routed, not an App; there is orders:app"),
        ("other:x", "other has no 'x'; there is no App in it"),
        ("other", "which App of other? there is no App in it"),
        ("sys:app", "sys has no 'app'; there is no App in it (a part of Python)"),
        ("string:app", f"string has no 'app'; there is no App in it ({string.__file__})"),
        ("nowhere.app:app", "module 'nowhere' is neither in "),
        ("orders.nope:app", "module 'orders.nope' is neither in "),
        ("orders/app.py:app", "'orders/app.py:app' is a file; expected MODULE:NAME, for example "),
        ("orders.py", "'orders.py' is a file; expected MODULE:NAME, for example orders:app"),
    ],
)
def test_error_for_an_invalid_application_name_lists_the_existing_ones(
    project: Path, name: str, message: str
) -> None:
    write(project, "orders.py", APP.format(group="billing"))
    write(project, "other.py", "")
    with pytest.raises(click.BadParameter) as refused:
        load(name)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def", "SyntaxError: invalid syntax (broken.py, line 3)"),
    ],
)
def test_import_error_shows_the_traceback_of_the_application(
    project: Path, capsys: pytest.CaptureFixture[str], line: str, error: str
) -> None:
    write(project, "broken.py", f"x = 1\n\n{line}\n")
    with pytest.raises(ImportFailed) as failed:
        load("broken:app")
    assert failed.value.exit_code == 1
    assert failed.value.message == f"broken could not be imported: {error}"
    shown = capsys.readouterr().err
    assert f'File "{project}/broken.py", line 3' in shown
    assert line in shown
    assert "importlib" not in shown
    assert "worker_app.py" not in shown


def test_missing_extra_of_an_application_is_one_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = "a payload of 'Order' needs msgspec, pip install '.[worker]'"
    head = "from sharegroup.errors import InvalidConfig, MissingExtra"
    raises = ("raise MissingExtra(%r)", "raise InvalidConfig(%r) from MissingExtra()")
    for number, statement in enumerate(text % error for text in raises):
        write(project, f"lacking{number}.py", f"{head}\n{statement}\n")
        with pytest.raises(ImportFailed) as failed:
            load(f"lacking{number}:app")
        assert failed.value.message == (
            f"lacking{number} could not be imported: {error} ({project}/lacking{number}.py:2)"
        )
    assert capsys.readouterr().err == ""


def test_command_line_overrides_bootstrap_servers_and_authentication(project: Path) -> None:
    write(
        project,
        "client.properties",
        "bootstrap.servers=file:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=secret\n",
    )
    app = App("x", bootstrap_servers="declared:9092", client={"client_id": "mine"})
    Overrides(None, None).apply_to(app)
    assert (app.bootstrap_servers, app.client_options) == ("declared:9092", {"client_id": "mine"})
    Overrides(None, project / "client.properties").apply_to(app)
    assert app.bootstrap_servers == "file:9092"
    assert app.client_options == {
        "client_id": "mine",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }
    Overrides("line:9092", project / "client.properties").apply_to(app)
    assert app.bootstrap_servers == "line:9092"


def test_cluster_of_an_application_is_that_of_the_option_then_variable_then_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App("x", bootstrap_servers="declared:9092")
    Overrides(None, None).apply_to(app)
    assert app.cluster.where == "declared:9092 (App 'x')"
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "variable:9092")
    assert app.cluster.where == "variable:9092 (SHAREGROUP_BOOTSTRAP)"
    Overrides("line:9092", None).apply_to(app)
    assert app.cluster.where == "line:9092 (--bootstrap-server)"


def test_profile_overrides_the_cluster_of_an_application(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        project,
        "config.toml",
        '[profiles.test]\nbootstrap.servers = "profile:9092"\nclient.id = "me"\n',
    )
    monkeypatch.setenv("SHAREGROUP_CONFIG", str(project / "config.toml"))
    app = App("x", bootstrap_servers="declared:9092")
    Overrides(None, None, "test").apply_to(app)
    assert (app.bootstrap_servers, app.client_options) == ("profile:9092", {"client_id": "me"})


@pytest.mark.parametrize(("text", "length"), [("10", 10.0), ("0.5", 0.5), ("1m30s", 90.0)])
def test_duration_without_a_unit_is_in_seconds(text: str, length: float) -> None:
    assert Length().convert(text, None, None) == length


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="a duration"):
        Length().convert(text, None, None)


def test_verb_for_processes_needs_an_application_or_a_pid_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["worker", "quiet"])
    assert end.value.code == 2
    assert "give the name of an application, or --pid-file" in capsys.readouterr().err


def test_error_that_only_reads_like_a_missing_extra_keeps_its_traceback(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "broken.py", "1\nraise ValueError(\"pip install 'sharegroup[worker]'\")\n")
    with pytest.raises(ImportFailed):
        load("broken:app")
    assert f'File "{project}/broken.py", line 2' in capsys.readouterr().err
