"""Faults over HTTP: a broker process that tests in other processes, and languages, can break."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sharegroup.client import sync
from tests.support.limits import HANGING_SECONDS


class Served:
    """A ``sharegroup serve`` with a test port."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        faults, ready = process.stdout.readline(), process.stdout.readline()
        self.url = faults.removeprefix("faults ").strip()
        found = re.search(r"bootstrap=(\S+)", ready)
        assert found, faults + ready
        self.bootstrap_servers = found.group(1)

    def post(self, path: str) -> tuple[int, str]:
        return self.answer(urllib.request.Request(self.url + path, method="POST"))

    def get(self, path: str) -> tuple[int, str]:
        return self.answer(urllib.request.Request(self.url + path))

    def answer(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=HANGING_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def produce(self, **options: object) -> list[str]:
        """Produce one record; return the name of its error, if any."""
        errors: list[str] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "retry.backoff.ms": 10, **options}
        )
        producer.produce("orders", b"one", on_delivery=lambda e, _: e and errors.append(e.name()))
        assert producer.flush(HANGING_SECONDS) == 0
        return errors


def serve(data: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sharegroup", "serve", "--data", str(data), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("served")
    with serve(data, "--port", "0", "--test-port", "0") as process:
        try:
            yield Served(process)
        finally:
            process.terminate()
            _, log = process.communicate(timeout=HANGING_SECONDS)
    assert process.returncode == 0, log


def test_failures_are_set_counted_listed_and_removed(served: Served) -> None:
    status, text = served.post("/fail?api=Produce&error=TOPIC_AUTHORIZATION_FAILED&times=all")
    assert status == 200
    number = json.loads(text)["number"]
    assert served.produce() == ["TOPIC_AUTHORIZATION_FAILED"]
    listed = json.loads(served.get("/faults")[1])
    assert listed["frozen"] is False
    assert [(fault["number"], fault["count"]) for fault in listed["faults"]] == [(number, 1)]
    assert served.post(f"/remove?number={number}")[0] == 200
    assert served.post(f"/remove?number={number}") == (
        400,
        f"there is no fault {number}; GET /faults lists them\n",
    )
    assert served.produce() == []


def test_connections_drop_and_requests_wait(served: Served) -> None:
    assert served.post("/drop?api=Produce&applied=true&topic=orders&partition=0")[0] == 200
    assert served.post("/delay?api=Produce&seconds=0.01&times=2&client_id=rdkafka")[0] == 200
    assert served.produce(**{"enable.idempotence": True}) == []
    faults = json.loads(served.get("/faults")[1])["faults"]
    assert [fault["count"] for fault in faults] == [1, 1]
    assert served.post("/clear")[0] == 200
    assert json.loads(served.get("/faults")[1])["faults"] == []


def test_broker_freezes_and_thaws(served: Served) -> None:
    served.post("/freeze")
    assert json.loads(served.get("/faults")[1])["frozen"] is True
    assert served.produce(**{"message.timeout.ms": 500}) == ["_MSG_TIMED_OUT"]
    served.post("/thaw")
    assert served.produce() == []


def test_disk_fills_up_and_has_room_again(served: Served) -> None:
    served.post("/disk/fill-up?room_bytes=0")
    assert served.produce(**{"message.timeout.ms": 500}) == ["_MSG_TIMED_OUT"]
    served.post("/disk/make-room")
    assert served.post("/disk/slow-down?sync_seconds=0.01")[0] == 200
    assert served.post("/disk/slow-down?sync_seconds=0")[0] == 200
    assert served.produce() == []


def test_clock_advances_and_leader_epochs_rise(served: Served) -> None:
    assert served.produce() == []
    assert served.post("/advance?seconds=30") == (200, "{}\n")
    first = json.loads(served.post("/bump-leader-epoch?topic=orders")[1])["leader_epoch"]
    second = json.loads(served.post("/bump-leader-epoch?topic=orders&partition=0")[1])
    assert second["leader_epoch"] == first + 1
    with sync.AdminClient(bootstrap_servers=served.bootstrap_servers) as admin:
        described = admin.describe_topics(["orders"])["orders"]
        assert not isinstance(described, Exception)
        assert described.partitions[0].leader_epoch == first + 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/fail?api=Produce", "the argument error=... is missing"),
        ("/fail?api=Produse&error=UNKNOWN_SERVER_ERROR", "there is no API 'Produse'"),
        ("/fail?api=Produce&error=NO_ERROR&times=0", "there is no error 'NO_ERROR'"),
        ("/drop?api=Produce&times=0", "times must be at least 1"),
        ("/drop?api=Produce&times=few", "times='few': expected a whole number, or all"),
        ("/drop?api=Produce&applied=maybe", "applied='maybe': expected true or false"),
        ("/drop?api=Produce&topik=orders", "unknown arguments: topik"),
        ("/delay?api=Produce&seconds=inf", "expected a finite number"),
        ("/advance?seconds=-1", "cannot go back"),
        ("/advance?seconds=1e300", "cannot go back, nor by more than"),
        ("/bump-leader-epoch?topic=nowhere", "nowhere"),
        ("/bump-leader-epoch?topic=orders&partition=9", "not 9"),
    ],
)
def test_wrong_arguments_are_refused_and_change_nothing(
    served: Served, path: str, message: str
) -> None:
    assert served.produce() == []
    status, text = served.post(path)
    assert status == 400
    assert message in text
    assert json.loads(served.get("/faults")[1])["faults"] == []


def test_help_describes_every_action(served: Served) -> None:
    status, text = served.get("/")
    assert status == 200
    known = served.post("/nowhere")[1].removeprefix("not found; the paths are ").strip()
    for path in known.split(", "):
        assert path in text, path


@pytest.mark.parametrize("more", [[], ["--insecure"]])
def test_test_port_is_refused_for_a_broker_that_others_can_reach(
    tmp_path: Path, more: list[str]
) -> None:
    with serve(tmp_path, "--host", "192.0.2.1", "--port", "0", "--test-port", "0", *more) as broker:
        _, log = broker.communicate(timeout=HANGING_SECONDS)
    assert broker.returncode == 2
    assert "a test port is only for a broker on loopback" in log
    assert "--insecure" not in log


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}]
)
def test_a_web_page_sets_no_fault(served: Served, headers: dict[str, str]) -> None:
    url = f"{served.url}/fail?api=*&error=NOT_LEADER_OR_FOLLOWER&times=all"
    status, text = served.answer(urllib.request.Request(url, method="POST", headers=headers))
    assert status == 403, text
    assert "evil.example" in text or "null" in text
    assert served.produce() == []
