"""The applications under ``examples/`` do what their first lines say, on a broker process."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlparse

import httpx
import pytest

from sharegroup.client import Producer
from tests.support.confluent_calls import admin, end_offset, produce
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess

ROOT = Path(__file__).resolve().parents[3]
WAIT_SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with ServeProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@contextmanager
def worker(
    application: str, broker: ServeProcess, folder: Path, **environment: str
) -> Iterator[None]:
    """``sharegroup worker`` as its reader starts it, but for the port."""
    log_path = folder / "worker.log"
    with open(log_path, "ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "sharegroup", "worker", application),
                *("--bootstrap-server", broker.bootstrap_servers),
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", **environment},
            stdout=log,
            stderr=log,
        )
    try:
        yield
        process.terminate()
        assert process.wait(WAIT_SECONDS_MAX) == 0, log_path.read_text()
    finally:
        process.kill()
        process.wait()


def sharegroup(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "sharegroup", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    limit = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < limit, f"waited {WAIT_SECONDS_MAX} s; so far: {what()}"
        time.sleep(0.02)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def send(broker: ServeProcess, topic: str, *payloads: dict[str, object]) -> None:
    """As another program would: JSON, by a client that is not ours."""
    cluster = admin(broker.bootstrap_servers)
    wait_until(lambda: topic in cluster.list_topics(timeout=HANGING_SECONDS).topics, str)
    produce(broker.bootstrap_servers, topic, [json.dumps(payload).encode() for payload in payloads])


@pytest.mark.slow
def test_web_application_responds_before_the_mail_is_sent(
    broker: ServeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOTSTRAP", broker.bootstrap_servers)
    monkeypatch.syspath_prepend(str(ROOT))
    from examples.web_app import web

    async def visit() -> dict[str, int]:
        reach = httpx.ASGITransport(app=web)
        async with (
            web.router.lifespan_context(web),
            httpx.AsyncClient(transport=reach, base_url="http://web") as client,
            asyncio.timeout(WAIT_SECONDS_MAX),
        ):
            for name in ("Ada", "unlucky Grace"):
                signup = {"name": name, "address": f"{name}@example.org"}
                assert (await client.post("/signups", json=signup)).status_code == 202
            mails: list[dict[str, Any]] = []
            while len(mails) < 2:
                mails = (await client.get("/mails")).json()
                await asyncio.sleep(0.01)
            assert (await client.get("/ready")).json()["healthy"]
        return {mail["name"]: mail["attempt"] for mail in mails}

    assert asyncio.run(visit()) == {"Ada": 1, "unlucky Grace": 2}


class Geocoder(http.server.BaseHTTPRequestHandler):
    """Knows every street but one, and sends everybody away once."""

    asked: ClassVar[Counter[str]] = Counter()
    times: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        address = parse_qs(urlparse(self.path).query)["q"][0]
        Geocoder.asked[address] += 1
        Geocoder.times.append(time.monotonic())
        if address == "nowhere":
            self._answer(404, b"{}")
        elif Geocoder.asked[address] == 1 and address.endswith("0"):
            self._answer(429, b"{}", ("Retry-After", "1"))
        else:
            self._answer(200, b'{"latitude": 52.5, "longitude": 13.4}')

    def _answer(self, status: int, content: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(content))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Not here."""


@pytest.mark.slow
def test_each_report_of_a_schedule_is_made_once(broker: ServeProcess, tmp_path: Path) -> None:
    folder = tmp_path / "reports"

    def reports() -> list[str]:
        return sorted(path.name for path in folder.glob("periodic@*.txt"))

    environment = {"REPORTS": str(folder), "PERIOD_SECONDS": "1"}
    with worker("examples.schedules:app", broker, tmp_path, **environment):
        wait_until(lambda: len(reports()) >= 3, reports)
    listed = json.loads(
        sharegroup(
            "schedules", "list", "reports", "--json",
            "--bootstrap-server", broker.bootstrap_servers,
        )
    )  # fmt: skip
    assert [(row["name"], row["topic"]) for row in listed] == [
        ("daily", "reports"),
        ("periodic", "reports"),
    ]
    assert listed[1]["runs"] >= 3


@pytest.mark.slow
def test_calls_to_a_slow_api_keep_its_limits(broker: ServeProcess, tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Geocoder) as api:
        thread = threading.Thread(target=api.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{api.server_port}/geocode"
        found = tmp_path / "found.csv"
        with worker("examples.slow_api:app", broker, tmp_path, API=url, FOUND=str(found)):
            places = [{"id": number, "address": f"street {number}"} for number in range(100)]
            send(broker, "places", *places, {"id": 100, "address": "nowhere"})
            wait_until(lambda: len(lines(found)) == 100, lambda: len(lines(found)))
            wait_until(lambda: end_offset(broker.bootstrap_servers, "places.dead") == 1, str)
        api.shutdown()
        thread.join()
    assert sorted(int(line.split(",")[0]) for line in lines(found)) == list(range(100))
    assert Geocoder.asked["street 10"] == 2  # Sent away, and came back when told to.
    assert Geocoder.asked["street 11"] == 1
    assert Geocoder.asked["nowhere"] == 1
    assert max(Counter(int(at) for at in Geocoder.times).values()) <= 2 * 50


@pytest.mark.slow
def test_pictures_are_made_smaller_in_processes(broker: ServeProcess, tmp_path: Path) -> None:
    with worker("examples.thumbnails:app", broker, tmp_path):
        picture = tmp_path / "picture.pgm"
        picture.write_bytes(b"P5 8 4 255\n" + bytes([12] * 4 + [200] * 4) * 4)  # 12: white space
        good = {"path": str(picture), "thumbnail": str(tmp_path / "small.pgm")}
        bad = {"path": str(tmp_path / "none.pgm"), "thumbnail": str(tmp_path / "none.small")}
        send(broker, "uploads", good, bad)
        small = tmp_path / "small.pgm"
        wait_until(small.exists, lambda: list(tmp_path.iterdir()))
        wait_until(lambda: end_offset(broker.bootstrap_servers, "uploads.dead") == 1, str)
    assert small.read_bytes() == b"P5 2 1 255\n" + bytes([12, 200])


@pytest.mark.slow
def test_changes_of_a_customer_are_applied_in_their_order(
    broker: ServeProcess, tmp_path: Path
) -> None:
    file = tmp_path / "customers.sqlite"
    customers = [f"customer-{number}" for number in range(20)]

    def balances() -> dict[str, tuple[int, int]]:
        if not file.exists():
            return {}
        with sqlite3.connect(file) as database:
            if not database.execute("select name from sqlite_schema").fetchall():
                return {}
            rows = database.execute("select name, version, balance from customers").fetchall()
        return {name: (version, balance) for name, version, balance in rows}

    changes = [
        {"customer": name, "version": version, "amount": version}
        for version in range(1, 11)
        for name in customers
    ]
    with worker("examples.customer_orders:app", broker, tmp_path, CUSTOMERS=str(file)):
        send(broker, "changes", *changes, changes[0])  # The first one comes twice.
        wait_until(lambda: balances() == dict.fromkeys(customers, (10, 55)), balances)


@pytest.mark.slow
def test_histories_of_accounts_are_in_order_while_workers_come_and_go(
    broker: ServeProcess, tmp_path: Path
) -> None:
    """Twenty accounts get bookings until two processes have written some of each other's."""
    file = tmp_path / "accounts.sqlite"
    accounts = [f"a{n}" for n in range(20)]
    address = broker.bootstrap_servers

    def rows() -> list[tuple[str, int, int]]:
        with sqlite3.connect(file) as database:
            if not database.execute("select name from sqlite_schema").fetchall():
                return []
            query = "select account, number, process from history order by rowid"
            return database.execute(query).fetchall()

    def processes() -> set[int]:
        return {process for _, _, process in rows()}

    async def send_bookings(number: int) -> None:
        async with Producer(bootstrap_servers=address) as producer:
            for account in accounts:
                booking = {"account": account, "number": number, "amount": 5}
                value = json.dumps(booking).encode()
                await producer.send("bookings", value, key=account.encode())

    sent = 0

    def send_until(condition: Callable[[], bool]) -> None:
        nonlocal sent

        def sends_and_looks() -> bool:
            nonlocal sent
            sent += 1
            asyncio.run(send_bookings(sent))
            return condition()

        wait_until(sends_and_looks, processes)

    with worker("examples.account_history:app", broker, tmp_path, ACCOUNTS=str(file)):
        cluster = admin(address)
        wait_until(
            lambda: "bookings" in cluster.list_topics(timeout=HANGING_SECONDS).topics, processes
        )
        send_until(lambda: len(processes()) == 1)
        with worker("examples.account_history:app", broker, tmp_path, ACCOUNTS=str(file)):
            send_until(lambda: len(processes()) == 2)
        wait_until(lambda: len(rows()) == 20 * sent, lambda: len(rows()))
    history: dict[str, list[int]] = {}
    for account, number, _ in rows():
        history.setdefault(account, []).append(number)
    assert history == {account: list(range(1, sent + 1)) for account in accounts}


@pytest.mark.slow
def test_waiting_payments_are_cancelled_and_run_and_workers_are_quieted(
    broker: ServeProcess, tmp_path: Path
) -> None:
    paid = tmp_path / "paid.csv"
    address = ("--bootstrap-server", broker.bootstrap_servers)

    def waiting() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(
            sharegroup("retries", "list", "payments", "--json", *address)
        )
        return listed

    def told(verb: str) -> dict[str, Any]:
        (row,) = json.loads(sharegroup("worker", verb, "payments", "--json", *address))
        return dict(row)

    with worker("examples.held_payments:app", broker, tmp_path, BANK="closed"):
        accounts = ("ada", "mallory", "grace")
        payments = [
            {"number": number, "account": account, "cents": 900}
            for number, account in enumerate(accounts)
        ]
        send(broker, "payments", *payments)
        wait_until(lambda: len(waiting()) == 3, waiting)
        assert {row["error_class"] for row in waiting()} == {"builtins.ConnectionError"}
        assert told("quiet")["outcome"] == "done"
        assert told("status")["phase"] == "quiet"
    with worker("examples.held_payments:app", broker, tmp_path, PAID=str(paid)):
        where = ("--where", 'account == "mallory"')
        assert "1 cancelled" in sharegroup("retries", "cancel", "payments", *where, *address)
        kind = ("--error-class", "ConnectionError")
        assert "2 " in sharegroup("retries", "run", "payments", *kind, *address)
        wait_until(lambda: len(lines(paid)) == 2, lambda: lines(paid))
        wait_until(lambda: end_offset(broker.bootstrap_servers, "payments.dead") == 1, str)
    assert sorted(lines(paid)) == ["0,ada,900", "2,grace,900"]


@pytest.mark.slow
def test_dead_letters_of_a_bug_are_redriven_after_the_fix(
    broker: ServeProcess, tmp_path: Path
) -> None:
    shares = tmp_path / "shares.csv"
    invoices = [{"number": n, "cents": 900, "people": n % 3} for n in range(6)]
    with worker("examples.after_a_bug:app", broker, tmp_path, SHARES=str(shares)):
        send(broker, "invoices", *invoices)
        wait_until(lambda: end_offset(broker.bootstrap_servers, "invoices.dead") == 2, str)
    assert sorted(lines(shares)) == ["1,900,", "2,450,", "4,900,", "5,450,"]
    address = ("--bootstrap-server", broker.bootstrap_servers)
    assert "ZeroDivisionError" in sharegroup("dlq", "list", "invoices.dead", *address)
    with worker("examples.after_a_bug:app", broker, tmp_path, SHARES=str(shares), FIXED="1"):
        sharegroup("dlq", "redrive", "invoices.dead", "--confirm", "invoices.retry", *address)
        wait_until(lambda: len(lines(shares)) == 6, lambda: lines(shares))
    again = [line.split(",") for line in lines(shares)[4:]]
    assert sorted(line[:2] for line in again) == [["0", "900"], ["3", "900"]]
    assert all(line[2] for line in again)  # A redrive's id in each.
