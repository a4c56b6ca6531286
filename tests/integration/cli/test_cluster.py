"""``sharegroup cluster`` and ``sharegroup ping``."""

from __future__ import annotations

import socket
import time

import pytest

from sharegroup.cli.main import main
from tests.integration.cli.conftest import Run


def test_brokers_have_their_addresses(run: Run, bootstrap: str) -> None:
    (row,) = run("cluster brokers --json").rows
    host, _, port = bootstrap.rpartition(":")
    assert (row["host"], str(row["port"])) == (host, port)
    assert (row["state"], row["rack"]) == ("running", None)


def test_controller_is_a_node_of_the_cluster(run: Run) -> None:
    (row,) = run("cluster controller --json").rows
    (broker,) = run("cluster brokers --json").rows
    assert row["controller"] == broker["id"]
    assert row["brokers"] == 1
    assert row["cluster_id"]


def test_share_groups_are_a_feature_and_a_request(run: Run) -> None:
    features = {row["feature"]: row for row in run("cluster features --json").rows}
    assert features["share.version"]["level"] >= 1
    requests = {row["request"]: row for row in run("cluster versions --json").rows}
    assert requests["ShareFetch"]["newest"] >= 1


def test_ping_of_a_broker_has_code_0(run: Run, bootstrap: str) -> None:
    printed = run("ping")
    assert printed.code == 0
    assert printed.out.startswith(f"{bootstrap} answers: cluster ")
    assert " with 1 broker, " in printed.out


def test_ping_of_nobody_has_code_1_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(SystemExit) as end:
            main(["ping", "--bootstrap", address, "--timeout", "300"])
    assert end.value.code == 1
    assert time.monotonic() - began < 5
    assert f"no response from {address}" in capsys.readouterr().err
